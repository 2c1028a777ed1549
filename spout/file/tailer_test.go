package file

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// tailer drives a spout that follows, through crashes, with a clock of its own.
type tailer struct {
	t         tester
	globs     []string
	clock     time.Time
	positions map[txn.PartitionID][]byte
	committed []string
	// meanwhile, if it is set, happens while the spout looks at the files: when the clock
	// has been asked for so many times more, at the third time between finding them and
	// finding out what they are.
	meanwhile func()
	after     int
	*reader
}

func newTailer(t tester, globs ...string) *tailer {
	w := &tailer{t: t, globs: globs, clock: time.Unix(1_000_000, 0), positions: map[txn.PartitionID][]byte{}}
	w.start()
	return w
}

func (w *tailer) start() {
	w.reader = &reader{Spout: NewSpout(w.globs, WithFollow())}
	w.follow.now = func() time.Time {
		if w.after--; w.after == 0 && w.meanwhile != nil {
			w.meanwhile()
		}
		return w.clock
	}
	var d txn.OutputDeclarer
	w.DeclareOutputFields(&d)
	streams, _ := d.Streams()
	w.out = txn.NewTestCollector(streams, func(_ string, vals []tuple.Value) {
		w.lines = append(w.lines, vals[0].Str())
	})
	if err := w.Open(txn.NewContext(nil, txn.Context{}, nil)); err != nil { //nolint:staticcheck // no generation that ends
		w.t.Fatal(err)
	}
	w.reader.take(w.t, maps.Clone(w.positions))
}

// crash begins again from what was committed.
func (w *tailer) crash() {
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.start()
}

func (w *tailer) commit() {
	moved, err := w.FinishBatch(1)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range moved {
		if m.Data == nil {
			delete(w.positions, m.Partition)
		} else {
			w.positions[m.Partition] = m.Data
		}
	}
	w.committed = append(w.committed, w.lines...)
	w.lines = nil
}

// read takes over new partitions and makes some calls; it reports whether the last
// one emitted.
func (w *tailer) read(calls int) (more bool) {
	w.clock = w.clock.Add(lookPause)
	ids, err := w.Partitions(nil) //nolint:staticcheck // the spout does not wait there
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range ids {
		if w.follow.ours[p] == nil {
			if err := w.Seek(p, nil); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for range calls {
		status, err := w.NextTuple(w.out)
		if err != nil {
			w.t.Fatal(err)
		}
		if more = status == txn.Emitted; !more {
			break
		}
	}
	return more
}

func (w *tailer) drain() {
	for w.read(1000) {
		continue
	}
	w.commit()
}

// expect reads all there is and compares the lines since the last call.
func (w *tailer) expect(want ...string) {
	if h, ok := w.t.(interface{ Helper() }); ok {
		h.Helper()
	}
	w.drain()
	if !slices.Equal(w.committed, want) {
		w.t.Fatal(fmt.Sprintf("read %q, want %q", w.committed, want))
	}
	w.committed = nil
}
