package link

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/isobar-io/isobar/tuple"
)

const ringFrames = 16

var words = &tuple.Stream{Component: "split", ID: tuple.DefaultStream, Fields: tuple.Fields{"word"}}

// begin makes an empty frame ready for 64 words.
func begin(f *tuple.Frame, keyed bool) {
	f.Begin(words, keyed)
	f.Grow(64)
}

// next receives the next frame, sleeping on the bell as tasks do; nil when done.
func next(c *Channel, bell *Bell, done <-chan struct{}) *tuple.Frame {
	for {
		if f := c.Receive(); f != nil {
			return f
		}
		bell.Arm()
		if !c.Ready() {
			select {
			case <-bell.C():
			case <-done:
				return nil
			}
		}
		bell.Disarm()
	}
}

// pauser makes a goroutine lose its turn now and then, in another rhythm for each
// seed.
type pauser uint32

func (p *pauser) pause(yield func()) {
	*p = *p*1664525 + 1013904223
	if *p>>24 < 3 {
		for range *p >> 16 & 63 {
			yield()
		}
	}
}

// In the bubble a lost wake-up is a deadlock, which synctest reports at once.
func TestMillionFramesArriveInOrder(t *testing.T) {
	n := uint64(1_000_000)
	if testing.Short() {
		n = 100_000
	}
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		bell := NewBell()
		c := NewChannel(Config{Frames: ringFrames, Generation: 7, SourceTask: 3, Receiver: bell, Done: done})
		var sender sync.WaitGroup
		sender.Go(func() {
			p := pauser(1)
			f := c.NewFrame()
			for i := range n {
				f.Mark.Count = i
				f, _ = c.Send(f)
				p.pause(runtime.Gosched)
			}
		})
		p := pauser(2)
		for i := range n {
			f := next(c, bell, done)
			if f.Mark.Count != i || !c.InOrder(f) || f.SourceTask != 3 || f.Generation != 7 {
				t.Fatalf("frame %d: count %d, seq %d, in order %t", i, f.Mark.Count, f.Seq, c.InOrder(f))
			}
			c.Return(f)
			p.pause(runtime.Gosched)
		}
		sender.Wait()
		if c.Ready() || c.Len() != 0 || c.Receive() != nil {
			t.Error("there is something left")
		}
	})
}

// One bell for many channels: whichever is rung, the sleeper must see it.
func TestOneBellForManyChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, n = 5, 20_000
		done, bell := make(chan struct{}), NewBell()
		var chans []*Channel
		var running sync.WaitGroup
		for s := range senders {
			c := NewChannel(Config{Frames: ringFrames, SourceTask: s, Receiver: bell, Done: done})
			chans = append(chans, c)
			running.Go(func() {
				p := pauser(s)
				f := c.NewFrame()
				for range n {
					f, _ = c.Send(f)
					p.pause(runtime.Gosched)
				}
			})
		}
		ready := func() bool {
			for _, c := range chans {
				if c.Ready() {
					return true
				}
			}
			return false
		}
		for got := 0; got < senders*n; {
			before := got
			for _, c := range chans {
				if f := c.Receive(); f != nil {
					c.Return(f)
					got++
				}
			}
			if got == before {
				bell.Arm()
				if !ready() {
					<-bell.C()
				}
				bell.Disarm()
			}
		}
		running.Wait()
	})
}

func TestFullChannelHoldsItsSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, bell := make(chan struct{}), NewBell()
		c := NewChannel(Config{Frames: ringFrames, Receiver: bell, Done: done})
		sent := 0
		go func() {
			for f := c.NewFrame(); sent < 3*ringFrames; sent++ {
				f, _ = c.Send(f)
			}
		}()
		for got := range 2 * ringFrames {
			synctest.Wait() // until the sender waits for room
			if sent != ringFrames+got || c.Len() != ringFrames {
				t.Fatalf("%d frames received: %d sent, %d queued", got, sent, c.Len())
			}
			c.Return(c.Receive())
		}
		synctest.Wait()
		if sent != 3*ringFrames {
			t.Errorf("%d frames sent", sent)
		}
	})
}

func TestSendEndsWithTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		c := NewChannel(Config{Frames: ringFrames, Receiver: NewBell(), Done: done})
		returned := false
		go func() {
			f := c.NewFrame()
			for range ringFrames {
				f, _ = c.Send(f)
			}
			begin(f, false)
			f.Append1(tuple.String("void"), 0)
			for range 10 { // not even the first finds room
				if f, _ = c.Send(f); f == nil || f.Len() != 0 {
					t.Error("Send did not return an empty frame")
				}
			}
			returned = true
		}()
		synctest.Wait()
		if returned {
			t.Fatal("Send returned although the channel is full")
		}
		close(done)
		synctest.Wait()
		if !returned {
			t.Fatal("Send still waits")
		}
	})
}

func TestFramesAreRecycled(t *testing.T) {
	bell := NewBell()
	c := NewChannel(Config{Frames: ringFrames, Receiver: bell, Done: make(chan struct{})})
	open := c.NewFrame()
	begin(open, false)
	seen := map[*tuple.Frame]bool{open: true}
	var held [ringFrames]*tuple.Frame
	text := tuple.Bytes([]byte("text"))
	round := func() {
		for range ringFrames {
			for range 64 {
				open.Append1(text, 0)
			}
			open, _ = c.Send(open)
			begin(open, false)
		}
		for i := range held {
			held[i] = c.Receive()
		}
		for _, f := range held {
			c.Return(f)
		}
	}
	round()
	round()
	for _, f := range held {
		seen[f] = true
	}
	seen[open] = true
	if got := testing.AllocsPerRun(20, round); got != 0 {
		t.Errorf("%v allocations a round", got)
	}
	for _, f := range held {
		if !seen[f] {
			t.Error("a new frame was made")
		}
		if f != open && (f.Len() != 0 || f.Stream != nil) {
			t.Error("a frame came back full")
		}
	}
}

func TestPoisonShowsATupleThatWasKept(t *testing.T) {
	for _, poison := range []bool{false, true} {
		c := NewChannel(Config{Frames: ringFrames, Receiver: NewBell(), Done: make(chan struct{}), Poison: poison})
		f := c.NewFrame()
		begin(f, true)
		f.Append1(tuple.String("string"), 7)
		f.Append1(tuple.Bytes([]byte("bytes")), 8)
		c.Send(f)
		got := c.Receive()
		var kept, clone, alsoKept tuple.Tuple
		kept.At(got, 0)
		alsoKept.At(got, 1)
		clone = *alsoKept.Clone()
		str, raw := kept.Str(0), alsoKept.Bytes(0)
		c.Return(got)
		if str != "string" || clone.Str(0) != "bytes" {
			t.Errorf("poison %t: strings and clones are valid for ever: %q %q", poison, str, clone.Str(0))
		}
		if shown := strings.Contains(kept.Str(0), "used after Execute returned") && strings.Contains(alsoKept.Str(0), "Clone") &&
			raw[0] == 0xdb; shown != poison {
			t.Errorf("poison %t: kept tuples hold %q and %q, kept bytes %q", poison, kept.Str(0), alsoKept.Str(0), raw)
		}
	}
}

func TestFrameLimitReachesTheSender(t *testing.T) {
	c := NewChannel(Config{Frames: ringFrames, Receiver: NewBell(), Done: make(chan struct{})})
	if c.FrameLimit() != firstLimit {
		t.Errorf("first limit %d", c.FrameLimit())
	}
	c.SetFrameLimit(700)
	if _, limit := c.Send(c.NewFrame()); limit != 700 {
		t.Errorf("limit %d", limit)
	}
}

func TestFrameOutOfOrderIsSeen(t *testing.T) {
	c := NewChannel(Config{Frames: ringFrames, Generation: 2, Receiver: NewBell(), Done: make(chan struct{})})
	for range 3 {
		c.Send(c.NewFrame())
	}
	first, second := c.Receive(), c.Receive()
	if c.InOrder(first) || !c.InOrder(second) {
		t.Error("only the newest frame is in order")
	}
	third := c.Receive()
	third.Generation = 1
	if c.InOrder(third) {
		t.Error("a frame of an older generation is in order")
	}
}

func TestBellRingsOnlyForASleeper(t *testing.T) {
	b := NewBell()
	rung := func() bool {
		select {
		case <-b.C():
			return true
		default:
			return false
		}
	}
	b.Ring()
	if rung() {
		t.Error("rung though nobody sleeps")
	}
	b.Arm()
	b.Ring()
	b.Ring()
	if !rung() || rung() {
		t.Error("an armed bell rings once")
	}
	b.Arm()
	b.Ring()
	b.Disarm()
	if rung() {
		t.Error("rung after the sleeper woke by itself")
	}
}

func TestMailboxLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, n = 4, 20_000
		m := NewMailbox[[2]int]()
		for w := range writers {
			go func() {
				p := pauser(w)
				for i := range n {
					m.Put([2]int{w, i})
					p.pause(runtime.Gosched)
				}
			}()
		}
		var at [writers]int
		for total := 0; total < writers*n; {
			<-m.Signal()
			for _, v := range m.Take() {
				if v[1] != at[v[0]] {
					t.Fatalf("writer %d: message %d after %d", v[0], v[1], at[v[0]]-1)
				}
				at[v[0]]++
				total++
			}
		}
		if m.Pending() || len(m.Take()) != 0 {
			t.Error("there is something left")
		}
	})
}

func TestMailboxReusesItsMemory(t *testing.T) {
	m := NewMailbox[int]()
	fill := func() {
		for i := range 100 {
			m.Put(i)
		}
		if !m.Pending() || len(m.Take()) != 100 || m.Pending() {
			t.Error("lost a message")
		}
	}
	fill()
	fill()
	if got := testing.AllocsPerRun(50, fill); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
