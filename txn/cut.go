package txn

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// A batch's changes are cut in two steps, so that the task is held up by neither,
// however much has changed. Mark sets the batch apart; it costs the same for one
// change or a million. Copy then takes some of the marked changes at a time, between
// other work; what is about to be written again before its turn has come is copied
// first. The idea is that of copy-on-write snapshots, by entry instead of by page.

// noMark is State.marked while nothing is being copied; no entry has it.
const noMark = ^BatchID(0)

// openMark is set in the marks of batches that are not copied, so that they are later
// than any batch that is.
const openMark = BatchID(1) << 63

// Marked is what one batch has changed, from Mark on. It belongs to the task's
// goroutine until Copy has returned it.
type Marked struct {
	batch  BatchID
	parts  [][]Record // full ones, apart from the last
	buf    []byte     // room for what records refer to
	shrunk bool
	err    error
	cut    *Cut

	indexed int // how many records byKey knows
	byKey   map[string][]byte
}

const (
	partRecords = 1 << 10
	bufBytes    = 64 << 10
	valueRoom   = 64 // for a value whose size is not known
)

// room returns an empty slice with a capacity of at least n. What is appended to it is
// safe once it was given to keep, which returns it.
func (m *Marked) room(n int) []byte {
	if cap(m.buf)-len(m.buf) < n {
		m.buf = make([]byte, 0, max(n, bufBytes))
	}
	return m.buf[len(m.buf):]
}

func (m *Marked) keep(b []byte) []byte {
	if n := len(m.buf) + len(b); n <= cap(m.buf) {
		m.buf = m.buf[:n]
	} // else it has outgrown the room and lives elsewhere
	return b[:len(b):len(b)]
}

func (m *Marked) add(r Record) {
	last := len(m.parts) - 1
	if last < 0 || len(m.parts[last]) == partRecords {
		m.parts = append(m.parts, make([]Record, 0, partRecords))
		last++
	}
	m.parts[last] = append(m.parts[last], r)
}

// fail notes the first thing that went wrong; Copy returns it.
func (m *Marked) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// Batch returns the batch.
func (m *Marked) Batch() BatchID { return m.batch }

// Cut returns the batch's changes, once Copy has returned m: the same at each call. It
// may be called on any goroutine, but on one at a time.
func (m *Marked) Cut() *Cut {
	if m.cut == nil {
		m.cut = &Cut{Batch: m.batch, Records: slices.Concat(m.parts...), Shrunk: m.shrunk}
	}
	return m.cut
}

// value returns the stored value of a key that was copied, nil if it was not.
func (m *Marked) value(key []byte) []byte {
	if m.byKey == nil {
		m.byKey = map[string][]byte{}
	}
	for ; m.indexed < m.records(); m.indexed++ {
		r := m.parts[m.indexed/partRecords][m.indexed%partRecords]
		m.byKey[textOf(r.Key)] = r.Value
	}
	return m.byKey[textOf(key)]
}

func (m *Marked) records() int {
	last := len(m.parts) - 1
	if last < 0 {
		return 0
	}
	return last*partRecords + len(m.parts[last])
}

// Mark sets apart everything written since the last Mark as the changes of batch n, to
// be copied by Copy. Nothing may be left to copy of an earlier batch.
func (s *State) Mark(n BatchID) {
	if s.cutting != nil {
		panic(fmt.Sprintf("broken invariant: batch %d is marked while batch %d is being copied", n, s.cutting.batch))
	}
	s.cutting = &Marked{batch: n}
	s.marked, s.open = s.open, s.open+1
	changes := 0
	for _, t := range s.tables {
		changes += t.mark()
	}
	if s.timers != nil {
		s.timers.mark()
	}
	for _, w := range s.sweepers {
		w.mark(changes)
	}
	if s.merges {
		s.inFlight = append(s.inFlight, s.cutting)
	}
}

// Copying reports whether a marked batch is not copied yet.
func (s *State) Copying() bool { return s.cutting != nil }

// Copy copies about limit changes of the marked batch and returns it when that was the
// rest, else nil. After an error the state is of no use any more.
func (s *State) Copy(limit int) (*Marked, error) {
	m := s.cutting
	done, err := s.copy(m, limit)
	if err = cmp.Or(m.err, err); err != nil {
		return nil, fmt.Errorf("component %q: snapshot of batch %d: %w", s.cfg.Component, m.batch, err)
	}
	if !done {
		return nil, nil
	}
	s.cutting, s.marked = nil, noMark
	return m, nil
}

func (s *State) copy(m *Marked, limit int) (done bool, err error) {
	for _, t := range s.tables {
		if limit -= t.copy(limit); limit <= 0 {
			return false, nil
		}
	}
	if s.timers != nil {
		if limit -= s.timers.copy(limit); limit <= 0 {
			return false, nil
		}
	}
	for _, w := range s.sweepers {
		if done, err := w.sweep(m, limit); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Cut takes everything written since the last Mark or Cut as the changes of a batch, in
// one step.
func (s *State) Cut(n BatchID) (*Cut, error) {
	s.Mark(n)
	for {
		switch m, err := s.Copy(partRecords); {
		case err != nil:
			return nil, err
		case m != nil:
			return m.Cut(), nil
		}
	}
}

// evictSteps is how many entries are looked at when one is added to a full state.
// settleSteps is that at a checkpoint.
const (
	evictSteps  = 8
	settleSteps = 1024
)

// Settle says that the backend holds the cuts up to that of batch applied, so that what
// they hold may leave memory. The engine calls it now and then.
func (s *State) Settle(applied BatchID) {
	s.applied = applied
	if s.timers != nil {
		s.timers.settle(applied)
	}
	s.inFlight = slices.DeleteFunc(s.inFlight, func(m *Marked) bool { return m.batch <= applied })
	s.evict(settleSteps)
}

// makeRoom lets an entry go, if one may, when memory is full.
func (s *State) makeRoom() {
	if s.held > s.cfg.CacheBytes {
		s.evict(evictSteps)
	}
}

// evict looks at some entries of all tables in turn as long as memory is over its budget.
func (s *State) evict(steps int) {
	for idle := 0; steps > 0 && s.held > s.cfg.CacheBytes && idle <= len(s.tables); {
		looked, round := s.tables[s.hand%len(s.tables)].evict(steps)
		if steps -= looked; round {
			s.hand++
			idle++
		}
	}
}

// mayGo reports whether memory need not hold what was last written at a mark.
func (s *State) mayGo(written BatchID, present bool) bool {
	return written <= s.applied || s.cfg.Volatile && !present && written < openMark
}

// Held returns how many bytes of entries the state keeps in memory.
func (s *State) Held() int64 { return s.held }

type liveView struct{ s *State }

func (v liveView) Scan(state string, fn func(key, value []byte) error) error {
	for i, t := range v.s.tables {
		if v.s.names[i] != state {
			continue
		}
		recs, err := t.collect(nil)
		if err != nil {
			return err
		}
		slices.SortFunc(recs, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
		for _, r := range recs {
			if err := fn(r.Key[stateKeyPrefix:], r.Value); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("scan state %q: component %q has no such state", state, v.s.cfg.Component)
}
