package txn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// StateOption changes how a state is kept. It is passed to the function that
// registers the state.
type StateOption func(*stateOptions)

type stateOptions struct {
	ttl    time.Duration
	hasTTL bool
}

// WithTTL lets each entry of a state expire a while, at least a millisecond, after it
// was last written, in processing time. An expired entry reads as absent, and its room
// in memory, on disk and in checkpoints is freed a few entries at each batch, without
// its being read again. The while may change from run to run; whether there is one is
// part of what the state is.
func WithTTL(d time.Duration) StateOption {
	return func(o *stateOptions) { o.ttl, o.hasTTL = d, true }
}

// ttlSuffix marks the kinds of states whose values carry their expiry.
const ttlSuffix = "+ttl"

// optionsOf returns the options and notes what is wrong with them; ttl is in
// milliseconds, 0 for none.
func (s *State) optionsOf(name, kind string, opts []StateOption) (fullKind string, ttl int64) {
	var o stateOptions
	for _, opt := range opts {
		opt(&o)
	}
	if !o.hasTTL {
		return kind, 0
	}
	switch {
	case o.ttl < time.Millisecond:
		s.errs = append(s.errs, fmt.Errorf("state %q has a TTL of %s: it must be at least a millisecond", name, o.ttl))
	case s.cfg.Now == nil:
		s.errs = append(s.errs, fmt.Errorf("state %q has a TTL, but the state was made without a clock: set StateConfig.Now", name))
	}
	return kind + ttlSuffix, max(o.ttl.Milliseconds(), 1)
}

// now returns the processing time in milliseconds since 1970.
func (s *State) now() int64 { return s.cfg.Now() }

// Expiry returns when a stored value of a state expires, in milliseconds since 1970; ok
// is false if it does not. kind is the state's.
func Expiry(kind string, value []byte) (unixMilli int64, ok bool) {
	if !strings.HasSuffix(kind, ttlSuffix) || len(value) < 1+expiryBytes {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(value[1:])), true
}

const expiryBytes = 8

// timed is a value with its expiry.
type timed[T any] struct {
	val     T
	expires int64
}

// timedCodec encodes the expiry before the value.
func timedCodec[T any](c Codec[T]) Codec[timed[T]] {
	t := Codec[timed[T]]{
		Name:    c.Name,
		Version: c.Version,
		Append: func(dst []byte, v timed[T]) ([]byte, error) {
			return c.Append(binary.BigEndian.AppendUint64(dst, uint64(v.expires)), v.val)
		},
		Decode: func(b []byte, version uint8) (v timed[T], err error) {
			if len(b) < expiryBytes {
				return v, errShort
			}
			v.expires = int64(binary.BigEndian.Uint64(b))
			v.val, err = c.Decode(b[expiryBytes:], version)
			return v, err
		},
	}
	if c.Size != nil {
		t.Size = func(v timed[T]) int { return c.Size(v.val) }
	}
	if c.Clone != nil {
		t.Clone = func(v timed[T]) timed[T] { return timed[T]{c.Clone(v.val), v.expires} }
	}
	return t
}

// expiring is a state of one value for each key, with expiry.
type expiring[T any] struct {
	t   *table[timed[T]]
	ttl int64
}

func newExpiring[T any](s *State, name, kind string, first byte, c Codec[T], ttl int64) *expiring[T] {
	x := &expiring[T]{newTable(s, name, kind, first, timedCodec(c)), ttl}
	s.sweepers = append(s.sweepers, &sweeper{s: s, id: x.t.id, ttl: ttl, drop: x.drop})
	return x
}

func (x *expiring[T]) live(e *entry[timed[T]]) bool {
	return e.flags&flagPresent != 0 && e.val.expires > x.t.s.now()
}

func (x *expiring[T]) get() (T, bool, error) {
	e, err := x.t.load()
	if err != nil || !x.live(e) {
		var zero T
		return zero, false, err
	}
	return x.t.clone(e.val).val, true, nil
}

func (x *expiring[T]) set(val T) error {
	e, err := x.t.load()
	if err != nil {
		return err
	}
	x.t.replace(e, x.t.clone(timed[T]{val, x.t.s.now() + x.ttl}))
	return nil
}

func (x *expiring[T]) add(val T, combine func(a, b T) T) error {
	e, err := x.t.load()
	if err != nil {
		return err
	}
	if x.live(e) {
		val = combine(e.val.val, val)
	}
	x.t.replace(e, x.t.clone(timed[T]{val, x.t.s.now() + x.ttl}))
	return nil
}

// unexpired returns fn for the values of a scan, without those that have expired.
func (x *expiring[T]) unexpired(fn func(key []tuple.Value, val T) error) func([]tuple.Value, timed[T]) error {
	return func(key []tuple.Value, v timed[T]) error {
		if v.expires <= x.t.s.now() {
			return nil
		}
		return fn(key, v.val)
	}
}

func (x *expiring[T]) drop(stateKey []byte, now int64) (gone bool, err error) {
	hash, tag, payload, err := splitKey(stateKey[stateKeyPrefix:])
	if err != nil {
		return false, err
	}
	e := x.t.lookup(hash, tag, payload)
	if e == nil {
		return true, nil
	}
	batch := x.t.s.cutting.batch
	if e.flags&flagPresent == 0 || e.written >= batch || e.val.expires > now {
		return false, nil
	}
	x.t.drop(e)
	e.written = batch
	return true, nil
}

// splitKey returns the parts by which tables know an encoded key.
func splitKey(key []byte) (hash uint64, tag byte, payload string, err error) {
	vals, err := tuple.DecodeKey(key)
	if err != nil {
		return 0, 0, "", err
	}
	hash, ok := tuple.HashKey(vals)
	if !ok {
		return 0, 0, "", tuple.ErrKeyKind
	}
	if len(key) > 0 {
		tag, payload = key[0], string(key[1:])
	}
	return hash, tag, payload, nil
}

// At each cut the sweep of a state visits at least sweepRows of its rows in the
// backend, and two for each key that the batch has changed, so that it keeps up with
// whatever is written. Going on to the next key group counts as sweepSeek rows.
const (
	sweepRows = 4096
	sweepSeek = 16
	// sweepShrunk is how many rows must have expired in a round, and be more than a
	// quarter of all, for the state to be worth writing anew.
	sweepShrunk = 4096
)

// sweeper goes round the rows of one state in the backend, a few at each cut, and
// deletes those that have expired. After a round it rests until something may have.
type sweeper struct {
	s   *State
	id  uint16
	ttl int64 // of what is written now
	// drop is told that the backend holds an expired row, and answers whether the cut
	// that is being copied is to delete it: not if memory knows something newer. What
	// memory holds of it is deleted there.
	drop func(stateKey []byte, now int64) (gone bool, err error)

	budget   int    // rows that are still to be looked at for the marked batch
	from     []byte // where to go on; nil = at the beginning of a round
	began    int64  // when the round began
	earliest int64  // of the expiries seen in it
	seen     int    // rows in it
	expired  int    // rows that had expired
	restTill int64
}

// mark gives the sweep of a batch its budget; changes is how much the batch has written.
func (w *sweeper) mark(changes int) {
	now := w.s.now()
	w.budget = 0
	switch {
	case w.s.cfg.Backend.Empty():
		if changes > 0 { // this cut may be the first one that the backend gets
			w.restTill = now + w.ttl
		} else if now >= w.restTill {
			w.restTill = 0
		}
	case w.from != nil || now >= w.restTill:
		w.budget = max(sweepRows, 2*changes)
	}
}

// sweep looks at about limit rows and adds their deletions to m. done is true when
// that was all for this batch.
func (w *sweeper) sweep(m *Marked, limit int) (done bool, err error) {
	if w.budget <= 0 {
		return true, nil
	}
	now := w.s.now()
	if w.from == nil {
		w.from = AppendStateKey(nil, w.s.cfg.From, w.id, nil)
		w.began, w.earliest, w.seen, w.expired = now, math.MaxInt64, 0, 0
	}
	limit = min(limit, w.budget)
	w.budget -= limit
	for w.from != nil && limit > 0 {
		if limit, err = w.visit(m, now, limit); err != nil {
			return false, fmt.Errorf("sweep state %d: %w", w.id, err)
		}
	}
	if w.from == nil {
		w.budget = 0
	}
	return w.budget <= 0, nil
}

// visit looks at up to limit rows of a key group and returns how many are left to look
// at.
func (w *sweeper) visit(m *Marked, now int64, limit int) (left int, err error) {
	group := int(binary.BigEndian.Uint16(w.from))
	var expired [][]byte
	err = w.s.cfg.Backend.Range(w.from, prefixEnd(AppendStateKey(nil, group, w.id, nil)), func(key, value []byte) error {
		if limit--; limit < 0 {
			w.from = bytes.Clone(key)
			return errStop
		}
		w.seen++
		switch at, ok := Expiry(ttlSuffix, value); {
		case ok && at <= now:
			w.expired++
			expired = append(expired, bytes.Clone(key))
		case ok:
			w.earliest = min(w.earliest, at)
		}
		return nil
	})
	switch {
	case err == nil && group+1 < w.s.cfg.To:
		limit -= sweepSeek
		w.from = AppendStateKey(nil, group+1, w.id, nil)
	case err == nil:
		w.rest()
		m.shrunk = m.shrunk || w.expired >= sweepShrunk && w.expired > w.seen/4
	case !errors.Is(err, errStop):
		return 0, err
	}
	for _, key := range expired {
		gone, err := w.drop(key, now)
		if err != nil {
			return 0, err
		}
		if gone {
			m.add(Record{Key: key, Delete: true})
		}
	}
	return limit, nil
}

// rest ends a round. The next one begins when something may have expired, but not
// so soon that the sweep would never rest.
func (w *sweeper) rest() {
	w.from = nil
	w.restTill = max(min(w.earliest, w.began+w.ttl), w.began+w.ttl/16)
}

// due returns when the sweep has something to do.
func (w *sweeper) due() int64 {
	switch {
	case w.s.cfg.Backend.Empty() && w.restTill == 0:
		return math.MaxInt64
	case w.from != nil:
		return math.MinInt64
	}
	return w.restTill
}

// Expires reports whether a state has a TTL. The engine asks after Open.
func (s *State) Expires() bool { return len(s.sweepers) > 0 }

// SweepDue returns when, in milliseconds since 1970, a cut would find expired entries
// to look for, so that the engine can take a checkpoint then although nothing else
// changes. ok is false while there is nothing to wait for.
func (s *State) SweepDue() (unixMilli int64, ok bool) {
	at := int64(math.MaxInt64)
	for _, w := range s.sweepers {
		at = min(at, w.due())
	}
	return at, at != math.MaxInt64 && !s.cfg.Volatile
}
