package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/spout/spouttest"
	"github.com/isobar-io/isobar/txn"
)

// Each step appends to one file and rotates another one, in all ways in turn.
func TestGrowingConformance(t *testing.T) {
	spouttest.RunGrowing(t, func(t testing.TB) spouttest.Growing {
		dir := t.TempDir()
		clock := time.Unix(1_000_000, 0)
		line, names := 0, 0
		put := func(name string, count int) int {
			var sb strings.Builder
			for range count {
				line++
				fmt.Fprintf(&sb, "line %d\n", line)
			}
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if len(data) == 0 {
				write(t, path, sb.String())
			} else {
				appendTo(t, path, sb.String())
			}
			return count
		}
		return spouttest.Growing{
			Open: func() txn.Spout {
				s := NewSpout([]string{filepath.Join(dir, "*.log*")}, WithFollow())
				s.follow.now = func() time.Time { clock = clock.Add(lookPause / 2); return clock }
				return s
			},
			Grow: func(t testing.TB, step int) int {
				tuples := put("a.log", 200) + put("b.log", 3)
				names++
				b := filepath.Join(dir, "b.log")
				switch rotated := fmt.Sprintf("%s.%d", b, names); step % 3 {
				case 0:
					rename(t, b, rotated)
				case 1:
					copyFile(t, b, rotated)
					write(t, b, "")
				}
				return tuples + put("b.log", 1)
			},
		}
	})
}

// world is files that are written, rotated in every way and read, with crashes, in
// any order.
type world struct {
	t      *rapid.T
	dir    string
	w      *tailer
	header string
	line   int
	names  int
	must   []string        // lines that must come once
	may    map[string]bool // lines that a copier lost: once or not at all
	copied []string        // lines of the log since it was copied
	copy   bool            // the log has been copied and not cut yet
	fresh  int             // lines in the log that are not its header
}

func (x *world) log() string { return filepath.Join(x.dir, "log") }

func (x *world) begin() {
	write(x.t, x.log(), x.header)
	x.fresh = 0
	if x.header != "" {
		x.must = append(x.must, strings.TrimSuffix(x.header, "\n"))
	}
}

func (x *world) append() {
	x.line++
	line := fmt.Sprintf("line %d%s", x.line, strings.Repeat(".", rapid.SampledFrom([]int{0, 0, 0, 900, 2000}).Draw(x.t, "width")))
	appendTo(x.t, x.log(), line[:len(line)/2])
	if rapid.Bool().Draw(x.t, "read half") {
		x.read()
	}
	appendTo(x.t, x.log(), line[len(line)/2:]+"\n")
	x.fresh++
	if x.copy {
		x.copied = append(x.copied, line)
	} else {
		x.must = append(x.must, line)
	}
}

func (x *world) read() { x.w.read(rapid.IntRange(0, 3).Draw(x.t, "calls")) }

func (x *world) nextName() string {
	x.names++
	return fmt.Sprintf("%s.%d", x.log(), x.names)
}

func (x *world) rename() {
	if x.fresh == 0 || x.copy {
		return
	}
	rename(x.t, x.log(), x.nextName())
	if rapid.Bool().Draw(x.t, "look without a log") {
		x.read()
	}
	x.begin()
}

func (x *world) copyOrCut() {
	switch {
	case x.fresh == 0:
	case !x.copy:
		copyFile(x.t, x.log(), x.nextName())
		x.copy = true
	default:
		write(x.t, x.log(), "")
		for _, l := range x.copied {
			x.may[l] = true
		}
		x.copy, x.copied = false, nil
		if rapid.Bool().Draw(x.t, "look while it is empty") {
			x.read()
		}
		x.begin()
	}
}

// cutMeanwhile copies and cuts the log, and begins it anew, while the spout looks at it.
func (x *world) cutMeanwhile() {
	if x.fresh == 0 || x.copy {
		return
	}
	name, lines := x.nextName(), rapid.IntRange(0, 3).Draw(x.t, "lines")
	x.w.after = rapid.IntRange(1, 8).Draw(x.t, "after")
	x.w.meanwhile = func() {
		x.w.meanwhile = nil
		copyFile(x.t, x.log(), name)
		write(x.t, x.log(), "")
		x.begin()
		for range lines {
			x.line++
			line := fmt.Sprintf("line %d", x.line)
			appendTo(x.t, x.log(), line+"\n")
			x.must = append(x.must, line)
			x.fresh++
		}
	}
	x.read()
	if x.w.meanwhile != nil {
		x.w.meanwhile()
	}
}

// removeOld removes a rotated file that was read.
func (x *world) removeOld() {
	old, err := filepath.Glob(x.log() + ".*")
	if err != nil {
		x.t.Fatal(err)
	}
	if len(old) == 0 || x.copy {
		return
	}
	x.w.drain()
	remove(x.t, rapid.SampledFrom(old).Draw(x.t, "remove"))
}

func TestEveryFollowedLineComesOnce(t *testing.T) {
	base, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(base, fmt.Sprint(runs))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		x := &world{t: t, dir: dir, header: rapid.SampledFrom([]string{"", "header\n"}).Draw(t, "header"), may: map[string]bool{}}
		x.w = newTailer(t, filepath.Join(dir, "log*"))
		x.begin()
		t.Repeat(map[string]func(*rapid.T){
			"append":      func(*rapid.T) { x.append() },
			"append more": func(*rapid.T) { x.append() },
			"read":        func(*rapid.T) { x.read() },
			"commit":      func(*rapid.T) { x.w.commit() },
			"crash":       func(*rapid.T) { x.w.crash(); x.w.lines = nil },
			"rename":      func(*rapid.T) { x.rename() },
			"copy or cut": func(*rapid.T) { x.copyOrCut() },
			"cut at once": func(*rapid.T) { x.cutMeanwhile() },
			"remove":      func(*rapid.T) { x.removeOld() },
		})
		if x.copy {
			x.copyOrCut()
		}
		x.append()
		x.w.drain()
		x.check()
		x.w.crash()
		x.w.drain()
		x.check()
		if err := x.w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func (x *world) check() {
	counts := map[string]int{}
	for _, l := range x.w.committed {
		counts[l]++
	}
	for _, l := range x.must {
		counts[l]--
	}
	for l, n := range counts {
		if n != 0 && (n != 1 || !x.may[l]) {
			x.t.Fatalf("line %.20q came %d times too often", l, n)
		}
	}
}
