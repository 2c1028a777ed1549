package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestLogsOfAllProcesses(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		c.log("master", "one\ntwo is a longer line\nthree\n")
		c.log("worker 6700", "alpha\r\nbeta without an end")
		c.log("worker 6701", "")
		c.prints(`
master | one
master | two is a longer line
master | three
sup-a/6700 | alpha
sup-a/6700 | beta without an end
`, "logs", "words", "-n", "0")
		c.prints("master | three\nsup-a/6700 | beta without an end\n", "logs", "words", "-n1")
		c.prints("two is a longer line\nthree\n", "logs", "words", "--master", "-n", "2")
		c.prints("alpha\nbeta without an end\n", "logs", "words", "--worker", "sup-a/6700")
		c.prints("", "logs", "words", "--worker", "sup-a/6701")
		_, out, _ := c.call("logs", "words", "--json", "-n", "1")
		if want := "{\"process\":\"master\",\"line\":\"three\"}\n{\"process\":\"sup-a/6700\",\"line\":\"beta without an end\"}\n"; out != want {
			t.Errorf("JSON is\n%s\nwant\n%s", out, want)
		}
	})
}

func TestLogsThatAreNotAllThere(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		c.log("master", "lost\n!kept\n") // what is before the ! is not kept
		c.prints("!kept\n", "logs", "words", "-n", "0", "--master")
		c.prints("!kept\n", "logs", "words", "-n", "7", "--master")
	})
}

func TestLogsThatAreNotThere(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		c.log("worker 6700", "still there\n")
		code, out, errOut := c.call("logs", "words")
		if code != exitFailed || out != "sup-a/6700 | still there\n" || !strings.Contains(errOut, "log of master: asking supervisor sup-a: there is no log of master here") || !strings.Contains(errOut, "log of sup-a/6701: ") {
			t.Errorf("exit code %d, %q, %q", code, out, errOut)
		}
		for _, wrong := range []string{"sup-a", "/6700", "sup-a/", "sup-a/x", "sup-a/0"} {
			c.fails(exitUsage, "logs words --worker "+wrong, "--worker "+wrong+": it must be SUPERVISOR/PORT")
		}
		c.fails(exitUsage, "logs words --master --worker sup-a/6700", "--master and --worker")
		c.fails(exitUsage, "logs words -n -1", "--lines -1")
		c.fails(exitUsage, "logs")
		c.fails(exitFailed, "logs other", `topology "other" is not there`)
		c.fails(exitFailed, "logs words --worker sup-z/6700", `supervisor "sup-z", whose log is asked for, is not known`)
	})
}

// Of a topology that runs nowhere, supervisors may still have logs.
func TestLogsThatWereLeftBehind(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.runs(a, func(s *cluster.RunStatus) { s.Phase, s.Error = cluster.PhaseFailed, "gave up" })
		var d cluster.Detail
		for range 100 {
			if c.json(&d, "status", "words"); d.Assignment == nil {
				break
			}
			c.sleep(time.Second)
			d = cluster.Detail{}
		}
		if d.Assignment != nil || d.Topology.Status != cluster.Failed {
			t.Fatalf("it still runs: %+v", d)
		}
		c.fails(exitFailed, "logs words", "topology words runs nowhere, and no supervisor has logs of it: asking supervisor sup-a: there is no log of")
		c.log("master", "gave up\n")
		c.log("worker 6703", "bye\n")
		c.prints("sup-a/master | gave up\nsup-a/6703 | bye\n", "logs", "words")
	})
}

// syncBuffer is a buffer that a test reads while a command writes to it.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns what was written since.
func (b *syncBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text.String()
	b.text.Reset()
	return text
}

// background is a command that goes on until it ends or is interrupted.
type background struct {
	out, errOut syncBuffer
	cancel      context.CancelFunc
	code        chan int
}

func (c *testCluster) background(args ...string) *background {
	ctx, cancel := context.WithCancel(c.ctx)
	b := &background{cancel: cancel, code: make(chan int, 1)}
	c.running.Go(func() { b.code <- run(ctx, c.dial("ann"), args, &b.out, &b.errOut) })
	return b
}

// runs reports whether it has not ended.
func (b *background) runs() bool { return len(b.code) == 0 }

// end interrupts it, if it runs, and returns its exit code.
func (b *background) end() int { b.cancel(); return <-b.code }

func TestLogsAreFollowed(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.log("master", "old\nlast\n")
		b := c.background("logs", "words", "-f", "-n", "1")
		is := func(want, wantErr string) {
			t.Helper()
			c.sleep(followEvery + time.Millisecond)
			if got, gotErr := b.out.take(), b.errOut.take(); got != want || gotErr != wantErr {
				t.Errorf("printed %q and %q, want %q and %q", got, gotErr, want, wantErr)
			}
		}
		is("master | last\n", "isobar: log of sup-a/6700: asking supervisor sup-a: there is no log of worker 6700 here\nisobar: log of sup-a/6701: asking supervisor sup-a: there is no log of worker 6701 here\n")
		c.log("master", "half a ")
		is("", "")
		c.log("master", "line\n\n")
		c.log("worker 6700", "begins\n")
		is("master | half a line\nmaster | \nsup-a/6700 | begins\n", "")
		a.Workers = append(a.Workers, cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: "sup-a", Port: 6703}})
		c.log("worker 6703", "new\n")
		c.log("worker 6701", "late\n")
		c.tell(cluster.BucketAssignments, a.ID, a)
		c.sleep(15 * time.Second) // nimbus looks at all
		is("sup-a/6701 | late\n", "")
		c.nimbus.Cut() // it is interrupted while it asks
		is("", "")
		if code := b.end(); code != exitOK || b.errOut.take() != "" {
			t.Errorf("exit code %d", code)
		}
	})
}

// The log of a master that was moved is another one.
func TestFollowedMasterIsMoved(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		c.log("master", "a long log of the first one\n")
		b := c.background("logs", "words", "--follow", "--master")
		c.sleep(followEvery / 2)
		c.mu.Lock()
		c.logs["master"] = []byte("second\n")
		c.mu.Unlock()
		c.sleep(followEvery)
		c.mu.Lock()
		c.logs["master"] = []byte("second\n" + strings.Repeat("gone ", 5) + "!third\n")
		c.mu.Unlock()
		c.sleep(followEvery)
		if code, got, gotErr := b.end(), b.out.take(), b.errOut.take(); code != exitOK || got != "a long log of the first one\nsecond\n!third\n" || gotErr != "isobar: log of master: 25 bytes are not kept any more\n" {
			t.Errorf("exit code %d, %q, %q", code, got, gotErr)
		}
	})
}

func TestLastLines(t *testing.T) {
	for _, x := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"a", 1, "a"}, {"a\n", 1, "a\n"}, {"a\nb", 1, "b"}, {"a\nb\n", 1, "b\n"}, {"a\n\n", 1, "\n"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\n", 5, "a\nb\n"}, {"\n", 1, "\n"},
	} {
		if got := x.text[lastLines([]byte(x.text), x.n):]; got != x.want {
			t.Errorf("the last %d lines of %q are %q", x.n, x.text, got)
		}
	}
}

// What goes on with a topology ends in order when that is killed.
func TestFollowersEndWithTheirTopology(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		for _, line := range []string{"logs two -f", "logs two -f --master", "monitor two -i 1", "monitor two -i 1 --json"} {
			c.submit("three")
			a := c.submit("two")
			c.runs(a, nil)
			for _, name := range []string{"master", "worker 6700", "worker 6701", "worker 6702", "worker 6703"} {
				c.log(name, "begun\n")
			}
			b := c.background(strings.Fields(line)...)
			c.sleep(2500 * time.Millisecond)
			if !b.runs() || b.errOut.take() != "" {
				t.Errorf("%s: it does not go on", line)
			}
			c.prints("Killed topology: two\n", "kill", "two", "--no-checkpoint")
			c.sleep(1500 * time.Millisecond)
			if b.runs() {
				t.Errorf("%s: it goes on without its topology", line)
			}
			if code, got := b.end(), b.errOut.take(); code != exitOK || got != "isobar: topology two has ended\n" {
				t.Errorf("%s: exit code %d, %q", line, code, got)
			}
			c.prints("Killed topology: three\n", "kill", "three", "--no-checkpoint")
		}
		c.fails(exitFailed, "logs two -f", `topology "two" is not there`)
		b := c.background("logs", "two", "-f", "--master")
		c.sleep(time.Second)
		if code, got := b.end(), b.errOut.take(); code != exitFailed || !strings.Contains(got, `topology "two" is not there`) {
			t.Errorf("of one that never was: exit code %d, %q", code, got)
		}
	})
}
