package peer

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/tuple"
)

// one makes f a frame of one tuple.
func one(f *tuple.Frame, vals ...tuple.Value) {
	f.Begin(map[int]*tuple.Stream{1: words, 2: pairs}[len(vals)], false)
	f.Grow(1)
	f.Append(vals, 0)
}

func TestTuplesOfAnySizeAreDelivered(t *testing.T) {
	e := newEnds(t, 1, nil)
	c, other := e.channel(1, 10, 16), e.channel(2, 11, 16)
	e.connect(t)
	sizes := []int{0, 1, 200, windowMin, chunkMax, chunkMax + 1, 1 << 20, 3 << 20, ValueBytesMax, 0}
	go func() {
		f := c.out.NewFrame()
		for _, n := range sizes {
			if n == ValueBytesMax {
				one(f, tuple.Bytes(bytes.Repeat([]byte("ab"), n/2)))
			} else {
				one(f, tuple.Bytes(bytes.Repeat([]byte("b"), n)), tuple.String(strings.Repeat("x", n)))
			}
			f, _ = c.out.Send(f)
		}
	}()
	go script{frames: 200, tuples: 10, bytes: 100}.play(other.out)
	if err := (script{frames: 200, tuples: 10, bytes: 100}).check(other, 0, 200); err != nil {
		t.Error(err)
	}
	for _, n := range sizes {
		f := c.next()
		if !c.in.InOrder(f) {
			t.Fatal(c.in.Err())
		}
		var v tuple.Tuple
		v.At(f, 0)
		if len(v.Bytes(0)) != n || f.Width() == 2 && v.Str(1) != strings.Repeat("x", n) {
			t.Errorf("%d bytes have come as %d", n, len(v.Bytes(0)))
		}
		c.in.Return(f)
	}
}

// A value that is too large fails its task, which is told which one it is, and nothing
// else: the link and its other channels go on.
func TestValueThatIsTooLargeIsAnErrorOfItsTask(t *testing.T) {
	e := newEnds(t, 1, nil)
	c, other := e.channel(1, 10, 16), e.channel(2, 11, 16)
	e.connect(t)
	f := c.out.NewFrame()
	one(f, tuple.String(strings.Repeat("x", ValueBytesMax+1)))
	f, _ = c.out.Send(f)
	err := <-e.failed
	for _, want := range []string{"split/default", `"word"`, "67108865", "67108864"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	one(f, tuple.String("void"))
	c.out.Send(f)
	s := script{frames: 100, tuples: 3, bytes: 3}
	go s.play(other.out)
	if err := s.check(other, 0, s.frames); err != nil {
		t.Error(err)
	}
	if c.in.Ready() || len(e.failed) > 0 {
		t.Error("what follows the frame that failed was sent, or the failure told twice")
	}
}

func TestObjectWithoutCodecIsAnErrorOfItsTask(t *testing.T) {
	e := newEnds(t, 1, nil)
	c := e.channel(1, 10, 16)
	e.connect(t)
	f := c.out.NewFrame()
	f.Begin(words, false)
	f.Grow(2)
	f.Append1(tuple.String("a"), 0)
	f.Append1(tuple.Any(struct{ X int }{1}), 0)
	c.out.Send(f)
	if err := <-e.failed; !strings.Contains(err.Error(), "struct { X int }") {
		t.Error(err)
	}
}

// A frame of many large strings is sent in parts; the mark comes behind the last tuple.
func TestFrameOfManyLargeTuplesIsDivided(t *testing.T) {
	e := newEnds(t, 1, nil)
	c := e.channel(1, 10, 16)
	e.connect(t)
	const n, size = 1000, 10_000
	limits := make(chan int, 1)
	c.in.SetFrameLimit(tuplesMax)
	go func() {
		f := c.out.NewFrame()
		f.Begin(words, true)
		for i := range n {
			if f.Full() {
				f.Grow(n)
			}
			f.Append1(tuple.String(strings.Repeat(string(rune('a'+i%26)), size)), uint64(i))
		}
		f.Mark = tuple.Mark{Kind: tuple.MarkBarrier, Batch: 4, Count: n}
		_, limit := c.out.Send(f)
		limits <- limit
	}()
	var got []int
	for row := 0; row < n; {
		f := c.next()
		if !c.in.InOrder(f) {
			t.Fatal(c.in.Err())
		}
		var v tuple.Tuple
		for r := range f.Len() {
			v.At(f, r)
			if v.Str(0) != strings.Repeat(string(rune('a'+row%26)), size) || f.Hashes()[r] != uint64(row) {
				t.Fatalf("tuple %d: %.20s", row, v.Str(0))
			}
			row++
		}
		if want := (tuple.Mark{Kind: tuple.MarkBarrier, Batch: 4, Count: n}); row == n && f.Mark != want || row < n && f.Mark != (tuple.Mark{}) {
			t.Errorf("at tuple %d: mark %v", row, f.Mark)
		}
		got = append(got, f.Len())
		c.in.Return(f)
	}
	if len(got) < 10 || slices.Max(got)*size > splitBytes {
		t.Errorf("parts of %d tuples", got)
	}
	if limit := <-limits; limit > windowMax/2/size || limit < 1 { // two frames fit
		t.Errorf("%d tuples for the next frame", limit)
	}
}

func TestFrameLimitReachesTheSender(t *testing.T) {
	e := newEnds(t, 1, nil)
	c := e.channel(1, 10, 4)
	e.connect(t)
	if c.out.FrameLimit() != firstLimit {
		t.Errorf("first limit %d", c.out.FrameLimit())
	}
	c.in.SetFrameLimit(77)
	f := c.out.NewFrame()
	for limit := 0; limit != 77; {
		one(f, tuple.String("x"))
		f, limit = c.out.Send(f)
		c.in.Return(c.next())
	}
}

func TestSenderIsToldToWait(t *testing.T) {
	e := newEnds(t, 1, nil)
	c := e.channel(1, 10, 2)
	waits := make(chan bool, 100)
	c.out.wait = func(w bool) { waits <- w }
	e.connect(t)
	returned := make(chan int)
	go func() {
		f := c.out.NewFrame()
		for range 4 {
			one(f, tuple.String("x"))
			f, _ = c.out.Send(f)
		}
		returned <- f.Len()
	}()
	if !<-waits {
		t.Error("the third frame does not wait")
	}
	c.in.Return(c.next())
	if <-waits || !<-waits {
		t.Error("credit for one does not let one go")
	}
	if second, third := c.next(), c.next(); second == nil || third == nil || c.in.Ready() {
		t.Error("not three frames have been sent")
	}
	close(e.done)
	if <-waits || <-returned != 0 {
		t.Error("the end of the generation does not wake the sender")
	}
}
