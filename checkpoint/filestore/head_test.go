package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/isobar-io/isobar/checkpoint"
)

// chain is all that has become of the heads of one store.
type chain struct {
	t    *testing.T
	next map[string]string // what has followed each
}

// last returns the head at which the chain ends.
func (c *chain) last() (head string) {
	for c.next[head] != "" {
		head = c.next[head]
	}
	return head
}

// moved writes down that a swap has succeeded.
func (c *chain) moved(from, to string) {
	if was, twice := c.next[from]; twice {
		c.t.Errorf("head %q was followed by %q and by %q", from, was, to)
	}
	c.next[from] = to
}

func version(head string) checkpoint.Version {
	if head == "" {
		return ""
	}
	return versionOf([]byte(head))
}

// swaps moves the head so many times.
func (c *chain) swaps(s *Store, times int) {
	for i := range times {
		data, v, err := s.ReadHead(c.t.Context())
		if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
			c.t.Fatal(err)
		}
		head := fmt.Sprintf("%d after %.10s", i, v)
		if _, err := s.SwapHead(c.t.Context(), v, []byte(head)); err != nil {
			c.t.Fatal(err)
		}
		c.moved(string(data), head)
	}
}

// TestFrozenWriter freezes who moves the head at each step, while others move it. Nobody
// waits for it, and when it goes on it changes nothing of what they have done.
func TestFrozenWriter(t *testing.T) {
	for _, heads := range []int{0, 1, headsKept + 10} {
		for _, others := range []int{1, 2, headsKept - 1, headsKept, headsKept + 1, 3 * headsKept} {
			for at, reached := 1, true; reached; at++ {
				mem := vfs.NewMem()
				mine, theirs := &fragile{mem: mem}, &fragile{mem: mem}
				c := &chain{t: t, next: map[string]string{}}
				s, other := mine.opened(), theirs.opened()
				c.swaps(other, heads)
				before := c.last()
				step := mine.step + at
				mine.before = func(now int) {
					if now == step {
						c.swaps(other, others)
					}
				}
				_, err := s.SwapHead(t.Context(), version(before), []byte("mine"))
				reached = mine.step >= step
				seen := c.next["mine"] != ""
				if err != nil && (!errors.Is(err, checkpoint.ErrHeadMoved) || !reached || seen && others < headsKept-1) {
					t.Error(err)
				}
				if err == nil || seen {
					c.moved(before, "mine")
				}
				if data, _, err := openStore(t, mem).ReadHead(t.Context()); err != nil || string(data) != c.last() {
					t.Errorf("the head is %q, %v; want %q; with %d heads, %d others at step %d", data, err, c.last(), heads, others, at)
				}
				if t.Failed() {
					return
				}
			}
		}
	}
}

func openStore(t *testing.T, mem *vfs.MemFS) *Store {
	t.Helper()
	s, err := openFragile(&fragile{mem: mem})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A list that lacks what came and went meanwhile hides neither that a writer was overtaken,
// nor that there is a head.
func TestListThatLacksSome(t *testing.T) {
	mem := vfs.NewMem()
	mine, theirs := &fragile{mem: mem}, &fragile{mem: mem}
	c := &chain{t: t, next: map[string]string{}}
	s, other := mine.opened(), theirs.opened()
	c.swaps(other, 3)
	before, path := c.last(), s.headPath(4)
	var overtaken, slow bool
	mine.before = func(int) {
		_, err := mem.Stat(path)
		switch {
		case !overtaken && mine.temps > 0: // it has read the head, and is about to write the next
			overtaken = true
			c.swaps(other, headsKept+10)
		case overtaken && !slow && err == nil: // it has linked a number that was free again
			slow = true
			c.swaps(other, 3*headsKept)
		}
	}
	mine.lacks = func(string) bool { return overtaken }
	if _, err := s.SwapHead(t.Context(), version(before), []byte("mine")); !errors.Is(err, checkpoint.ErrHeadMoved) {
		t.Error(err)
	}
	if !slow {
		t.Error("it has linked nothing")
	}
	if data, _, err := openStore(t, mem).ReadHead(t.Context()); err != nil || string(data) != c.last() {
		t.Errorf("the head is %q, %v; want %q", data, err, c.last())
	}
}

// A head that was read is there after a crash, also if who has written it died before it was
// durable.
func TestHeadOfADeadWriterIsDurableOnceRead(t *testing.T) {
	mem := vfs.NewCrashableMem()
	c := &chain{t: t, next: map[string]string{}}
	c.swaps(openStore(t, mem), 1)
	dies := &fragile{mem: mem}
	s := dies.opened()
	path := s.headPath(2)
	dies.before = func(int) {
		if _, err := mem.Stat(path); err == nil && dies.crashAt == 0 {
			dies.crashAt = dies.step
		}
	}
	if _, err := s.SwapHead(t.Context(), version(c.last()), []byte("second")); !errors.Is(err, errCrashed) {
		t.Fatal(err)
	}
	if data, _, err := openStore(t, mem.CrashClone(vfs.CrashCloneCfg{})).ReadHead(t.Context()); string(data) != c.last() {
		t.Fatalf("it was durable at once: %q, %v", data, err)
	}
	for range 2 {
		if data, _, err := openStore(t, mem).ReadHead(t.Context()); string(data) != "second" {
			t.Fatalf("the head is %q, %v", data, err)
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
	}
}

// A store whose head is in one file is read, and goes on; then that file goes.
func TestSoleHeadOfEarlierVersions(t *testing.T) {
	dir := t.TempDir()
	sole := filepath.Join(dir, soleHeadName)
	if err := os.WriteFile(sole, []byte("sole"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if data, v, err := s.ReadHead(t.Context()); string(data) != "sole" || v != version("sole") || err != nil {
		t.Fatalf("the head is %q, %s, %v", data, v, err)
	}
	if path, err := HeadFile(dir); path != sole || err != nil {
		t.Errorf("the head is %s, %v", path, err)
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("other")); !errors.Is(err, checkpoint.ErrHeadMoved) {
		t.Errorf("a first head beside it: %v", err)
	}
	(&chain{t: t, next: map[string]string{"": "sole"}}).swaps(s, 1)
	if _, err := os.Stat(sole); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the sole head: %v", err)
	}
	if path, err := HeadFile(dir); path != s.headPath(1) || err != nil {
		t.Errorf("the head is %s, %v", path, err)
	}
}

// A sole head that is replaced while somebody reads is no empty store.
func TestSoleHeadThatGoesMeanwhile(t *testing.T) {
	for at := 1; at < 20; at++ {
		mem := vfs.NewMem()
		mine, theirs := &fragile{mem: mem}, &fragile{mem: mem}
		s, other := mine.opened(), theirs.opened()
		f, err := mem.Create(s.headPath(0), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("sole")); err != nil {
			t.Fatal(err)
		}
		c := &chain{t: t, next: map[string]string{"": "sole"}}
		step := mine.step + at
		mine.before = func(now int) {
			if now == step {
				c.swaps(other, 1)
			}
		}
		if data, _, err := s.ReadHead(t.Context()); err != nil || string(data) != "sole" && string(data) != c.last() {
			t.Errorf("at step %d: %q, %v", at, data, err)
		}
	}
}

// Some numbers are kept, and of the heads that were replaced nothing but these: without the
// newest there is none.
func TestReplacedHeads(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := HeadFile(dir); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("a head in an empty folder: %v", err)
	}
	c := &chain{t: t, next: map[string]string{}}
	for n := uint64(1); n <= headsKept+9; n++ {
		c.swaps(s, 1)
		if path, err := HeadFile(dir); path != s.headPath(n) || err != nil {
			t.Errorf("the head is %s, %v", path, err)
		}
		if all, err := s.headNumbers(); len(all) != int(min(n, headsKept)) || err != nil {
			t.Errorf("after %d heads there are %d, %v", n, len(all), err)
		}
	}
	if all := files(t, dir); len(all) != 1+headsKept {
		t.Errorf("there are %v", all)
	}
	if err := os.Remove(s.headPath(headsKept + 9)); err != nil {
		t.Fatal(err)
	}
	if data, _, err := s.ReadHead(t.Context()); !errors.Is(err, checkpoint.ErrDamaged) || len(data) > 0 {
		t.Errorf("without the newest the head is %q, %v", data, err)
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("first")); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a first head then: %v", err)
	}
}
