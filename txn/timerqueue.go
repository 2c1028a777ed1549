package txn

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/tuple"
)

// timerQueue holds the timers of one kind. Timers are known by their state keys. Those
// up to a horizon are in memory, in the window; later ones are in the backend alone,
// or in pending, until the window has run empty.
type timerQueue struct {
	s  *State
	id uint16

	horizon int64 // every timer up to it, inclusive, is in the window
	window  timerHeap
	live    map[string]bool // of the window; a key of the heap that is not here was deleted
	// What the backend may not know yet.
	pending  map[string]pendingTimer
	dirty    []string // keys of pending written since the last mark
	marked   []string // by the cut that is being copied
	copied   int      // how many of them are done with
	settling []string // keys of pending that were copied, in order of their batches, maybe repeated
	ending   bool     // what is set now does not fire any more

	windowMax int
}

type pendingTimer struct {
	set     bool    // else deleted
	late    bool    // set when it could not fire any more
	written BatchID // as that of an entry
}

const timerKeyPrefix = stateKeyPrefix + 8

func newTimerQueue(s *State, id uint16) *timerQueue {
	return &timerQueue{
		s: s, id: id, horizon: math.MinInt64, live: map[string]bool{}, pending: map[string]pendingTimer{},
		windowMax: windowMax,
	}
}

// key returns the state key of a timer of the current key.
func (q *timerQueue) key(at int64, name string) string {
	s := q.s
	k := AppendStateKey(nil, tuple.KeyGroup(s.hash, s.cfg.Groups), q.id, nil)
	k = binary.BigEndian.AppendUint64(k, uint64(at)^1<<63)
	return string(append(tuple.AppendDelimited(k, s.appendKey(nil)), name...))
}

// timerTime returns the moment of a timer.
func timerTime(key string) int64 {
	return int64(binary.BigEndian.Uint64([]byte(key[stateKeyPrefix:timerKeyPrefix])) ^ 1<<63)
}

func (q *timerQueue) set(key string) {
	if q.live[key] {
		return
	}
	q.write(key, pendingTimer{set: true, late: q.ending})
	if !q.ending && timerTime(key) <= q.horizon {
		q.admit(key)
	}
}

func (q *timerQueue) remove(key string) {
	delete(q.live, key)
	q.write(key, pendingTimer{})
}

func (q *timerQueue) write(key string, p pendingTimer) {
	old, there := q.pending[key]
	if there && old.written == q.s.marked {
		q.copyTimer(key, old)
	}
	if !there || old.written != q.s.open {
		q.dirty = append(q.dirty, key)
	}
	p.written = q.s.open
	q.pending[key] = p
}

func (q *timerQueue) admit(key string) {
	if !q.live[key] {
		q.live[key] = true
		heap.Push(&q.window, key)
	}
}

// next returns the moment of the first timer.
func (q *timerQueue) next() (at int64, ok bool, err error) {
	for {
		for len(q.window) > 0 && !q.live[q.window[0]] {
			heap.Pop(&q.window)
		}
		if len(q.window) > 0 {
			return timerTime(q.window[0]), true, nil
		}
		if q.horizon == math.MaxInt64 {
			return 0, false, nil
		}
		if err := q.load(); err != nil {
			return 0, false, err
		}
	}
}

// take takes the first timer back if it is due, and returns it.
func (q *timerQueue) take(now int64) (key string, ok bool, err error) {
	at, ok, err := q.next()
	if err != nil || !ok || at > now {
		return "", false, err
	}
	key = q.window[0]
	q.remove(key)
	return key, true, nil
}

// loadRows is how many timers of each key group are read at once.
const loadRows = 64

// load moves the horizon on: it reads the next timers of each key group, up to a moment
// of which all are known.
func (q *timerQueue) load() error {
	horizon := int64(math.MaxInt64)
	var found []string
	if cfg := &q.s.cfg; !cfg.Backend.Empty() {
		for g := cfg.From; g < cfg.To; g++ {
			prefix := AppendStateKey(nil, g, q.id, nil)
			from := binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(q.horizon+1)^1<<63)
			n, last := 0, int64(0)
			err := cfg.Backend.Range(from, prefixEnd(prefix), func(key, _ []byte) error {
				if len(key) < timerKeyPrefix {
					return fmt.Errorf("%x is no timer", key)
				}
				k := string(key)
				at := timerTime(k)
				if n++; n > loadRows && at != last {
					horizon = min(horizon, last)
					return errStop
				}
				last, found = at, append(found, k)
				return nil
			})
			if stopped(err) != nil {
				return fmt.Errorf("read timers of key group %d: %w", g, err)
			}
		}
	}
	before := q.horizon
	q.horizon = horizon
	for _, k := range found {
		if _, written := q.pending[k]; !written && timerTime(k) <= horizon {
			q.admit(k)
		}
	}
	for k, p := range q.pending {
		if at := timerTime(k); p.set && !p.late && before < at && at <= horizon {
			q.admit(k)
		}
	}
	return nil
}

func (q *timerQueue) mark() { q.marked, q.copied, q.dirty = q.dirty, 0, q.marked[:0] }

func (q *timerQueue) copy(limit int) int {
	n := min(limit, len(q.marked)-q.copied)
	for _, k := range q.marked[q.copied : q.copied+n] {
		if p := q.pending[k]; p.written == q.s.marked { // else it was copied before it changed
			q.copyTimer(k, p)
		}
	}
	q.copied += n
	return n
}

// copyTimer gives the cut that is being copied a timer that it has marked.
func (q *timerQueue) copyTimer(key string, p pendingTimer) {
	r := Record{Key: []byte(key), Delete: !p.set}
	if p.set {
		r.Value = []byte{timerVersion}
	}
	q.s.cutting.add(r)
	p.written = q.s.cutting.batch
	q.pending[key] = p
	q.settling = append(q.settling, key)
}

// windowMax is how many timers are kept in memory, where there is a backend.
const windowMax = 1 << 16

// settle forgets what the backend knows, and shortens the window if it is too long.
func (q *timerQueue) settle(applied BatchID) {
	known := 0
	for _, k := range q.settling {
		p, there := q.pending[k]
		switch {
		case !there || p.written >= openMark: // forgotten, or to be copied again
		case p.written <= applied || q.s.cfg.Volatile && (!p.set || timerTime(k) <= q.horizon):
			delete(q.pending, k)
		default:
			q.settling[known] = k // not yet
			known++
		}
	}
	q.settling = q.settling[:known]
	if len(q.window) <= q.windowMax || q.s.cfg.Backend.Empty() {
		return
	}
	slices.SortFunc(q.window, compareTimers)
	keep := q.windowMax / 2
	for keep < len(q.window) && timerTime(q.window[keep]) == timerTime(q.window[keep-1]) {
		keep++
	}
	for _, k := range q.window[keep:] {
		delete(q.live, k)
	}
	q.horizon = min(q.horizon, timerTime(q.window[keep-1]))
	q.window = slices.Clone(q.window[:keep]) // a sorted slice is a heap
}

// compareTimers orders timers by moment, then by key and name.
func compareTimers(a, b string) int {
	return cmp.Or(strings.Compare(a[stateKeyPrefix:], b[stateKeyPrefix:]), strings.Compare(a, b))
}

// timerHeap implements heap.Interface.
type timerHeap []string

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return compareTimers(h[i], h[j]) < 0 }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(string)) }

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
