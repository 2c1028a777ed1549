package peer

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

// script is what one channel carries: frames of so many tuples of so many bytes each.
type script struct {
	frames, tuples, bytes int
}

func (s script) value(frame, row int) string {
	text := fmt.Sprint(frame, ".", row, " ")
	for len(text) < s.bytes {
		text += text[:min(len(text), s.bytes-len(text))]
	}
	return text
}

// play sends everything; the mark of each frame has its number.
func (s script) play(out *Outbound) {
	f := out.NewFrame()
	for i := range s.frames {
		f.Begin(pairs, i%2 == 0)
		for r := range s.tuples {
			if f.Full() {
				f.Grow(s.tuples)
			}
			f.Append2(tuple.String(s.value(i, r)), tuple.Bytes([]byte(s.value(i, r+1))), uint64(r))
		}
		f.Mark = tuple.Mark{Kind: tuple.MarkBarrier, Batch: 1, Count: uint64(i)}
		f, _ = out.Send(f)
	}
}

// check receives some frames and compares them.
func (s script) check(c *channel, from, to int) error {
	for i := from; i < to; i++ {
		for row := 0; ; {
			f := c.next()
			if f == nil {
				return fmt.Errorf("channel %d ended at frame %d", c.out.from, i)
			}
			if !c.in.InOrder(f) || f.SourceTask != c.out.from {
				return errors.Join(fmt.Errorf("channel %d, frame %d: seq %d, source %d", c.out.from, i, f.Seq, f.SourceTask), c.in.Err())
			}
			var v tuple.Tuple
			for r := range f.Len() {
				v.At(f, r)
				if v.Str(0) != s.value(i, row) || string(v.Bytes(1)) != s.value(i, row+1) {
					return fmt.Errorf("channel %d, frame %d, tuple %d: %.50s", c.out.from, i, row, v.Str(0))
				}
				row++
			}
			mark := f.Mark
			c.in.Return(f)
			if mark.Kind == tuple.MarkBarrier {
				if mark.Count != uint64(i) || row != s.tuples {
					return fmt.Errorf("channel %d, frame %d of %d tuples: mark %d, %d tuples", c.out.from, i, s.tuples, mark.Count, row)
				}
				break
			}
		}
	}
	return nil
}

// Any number of channels, one of which is not read until all others have delivered
// everything.
func TestChannelsDoNotHoldUpEachOther(t *testing.T) {
	e := newEnds(t, 1, nil)
	number := tuple.Generation(1)
	rapid.Check(t, func(r *rapid.T) {
		number++
		e.generation(t, number)
		n := rapid.IntRange(1, 12).Draw(r, "channels")
		scripts := make([]script, n)
		channels := make([]*channel, n)
		for i := range n {
			scripts[i] = script{
				frames: rapid.IntRange(1, 30).Draw(r, "frames"),
				tuples: rapid.IntRange(0, 40).Draw(r, "tuples"),
				bytes:  rapid.SampledFrom([]int{0, 10, 300, 5000}).Draw(r, "bytes"),
			}
			channels[i] = e.channel(i+1, 101+i, rapid.SampledFrom([]int{2, 4, 16}).Draw(r, "window"))
		}
		e.connect(t)
		var senders, receivers sync.WaitGroup
		errs := make([]error, n)
		for i, c := range channels {
			senders.Go(func() { scripts[i].play(c.out) })
			if i > 0 {
				receivers.Go(func() { errs[i] = scripts[i].check(c, 0, scripts[i].frames) })
			}
		}
		receivers.Wait()
		errs[0] = scripts[0].check(channels[0], 0, scripts[0].frames)
		senders.Wait()
		for _, err := range errs {
			if err != nil {
				r.Error(err)
			}
		}
		for i, c := range channels {
			if c.in.Ready() || c.in.Len() != 0 {
				r.Errorf("channel %d has something left", i)
			}
		}
		close(e.done)
		e.ga.Close()
		e.gb.Close()
		select {
		case err := <-e.failed:
			r.Error(err)
		default:
		}
	})
}
