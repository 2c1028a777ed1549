package txn

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/tuple"
)

// rows keeps a state that has any number of rows for each key: those that were written
// or read, over what the backend has. Values are kept as they are stored.
type rows struct {
	s     *State
	name  string
	id    uint16
	first byte  // first byte of stored values: the codec's version
	ttl   int64 // in milliseconds; 0 = rows do not expire

	buckets map[string]*bucket // by prefix
	dirty   []*bucket          // written since the last mark
	written []*row             // likewise
	marked  []*row             // by the cut that is being copied
	copied  int                // how many of them are done with
	clock   []*row             // all rows, in the order in which evict looks at them
	hand    int
	prefix  []byte // of the current key
	scratch []byte
}

// bucket is what memory knows of one key.
type bucket struct {
	prefix  string // of the state keys of all its rows
	hash    uint64
	payload string
	tag     byte
	rows    map[string]*row // by what follows the prefix
	written BatchID         // the mark under which it is in rows.dirty
}

type row struct {
	in      *bucket
	sub     string
	raw     []byte  // as stored, never changed but replaced; nil = there is no such row
	written BatchID // as that of an entry
	at      int     // in rows.clock
	flags   uint8
}

// Estimates of what a bucket and a row occupy beyond their texts and values.
const (
	bucketBytes = 256
	rowBytes    = 128
)

func newRows(s *State, name, kind, codec string, version uint8, opts []StateOption) *rows {
	kind, ttl := s.optionsOf(name, kind, opts)
	r := &rows{s: s, name: name, first: version, ttl: ttl, buckets: map[string]*bucket{}}
	r.id = s.register(StateMeta{Name: name, Kind: kind, Codec: codec, Version: version}, r)
	if ttl > 0 {
		s.sweepers = append(s.sweepers, &sweeper{s: s, id: r.id, ttl: ttl, drop: r.drop})
	}
	return r
}

// bucket returns what memory knows of the current key; nil if nothing, unless it is to
// be made. It sets r.prefix.
func (r *rows) bucket(create bool) *bucket {
	s := r.s
	r.scratch = s.appendKey(r.scratch[:0])
	r.prefix = tuple.AppendDelimited(AppendStateKey(r.prefix[:0], tuple.KeyGroup(s.hash, s.cfg.Groups), r.id, nil), r.scratch)
	b := r.buckets[string(r.prefix)]
	if b == nil && create {
		b = &bucket{prefix: string(r.prefix), hash: s.hash, tag: s.tag, payload: string([]byte(s.payload)), rows: map[string]*row{}}
		r.buckets[b.prefix] = b
		r.s.held += bucketBytes + int64(len(b.prefix)+len(b.payload))
	}
	return b
}

// load returns a row of the current key, reading it from the backend if it is not in
// memory. A row that there is not is remembered too.
func (r *rows) load(sub []byte) (*bucket, *row, error) {
	b := r.bucket(true)
	if w := b.rows[string(sub)]; w != nil {
		w.flags |= flagHot
		return b, w, nil
	}
	r.s.makeRoom() // maybe of the bucket too
	b = r.bucket(true)
	w := &row{in: b, sub: string(sub), flags: flagHot}
	if !r.s.cfg.Backend.Empty() {
		raw, _, err := r.s.cfg.Backend.Get(append(r.prefix, sub...))
		if err != nil {
			return nil, nil, r.errorf("read", err)
		}
		w.raw = raw
	}
	r.add(w)
	return b, w, nil
}

func (r *rows) add(w *row) {
	w.in.rows[w.sub], w.at = w, len(r.clock)
	r.clock = append(r.clock, w)
	r.s.held += rowBytes + int64(len(w.sub)+len(w.raw))
}

func (r *rows) errorf(what string, err error) error {
	return fmt.Errorf("%s state %q of key %s: %w", what, r.name, tuple.FormatKey(r.s.appendKey(nil)), err)
}

// get returns the payload of a row and the version that wrote it. The payload must not
// be changed.
func (r *rows) get(sub []byte) (payload []byte, version uint8, ok bool, err error) {
	_, w, err := r.load(sub)
	if err != nil {
		return nil, 0, false, err
	}
	return r.open(w.raw)
}

// open takes a stored value apart. ok is false if there is none, or it has expired.
func (r *rows) open(raw []byte) (payload []byte, version uint8, ok bool, err error) {
	if raw == nil {
		return nil, 0, false, nil
	}
	head := 1
	if r.ttl > 0 {
		head += expiryBytes
	}
	if len(raw) < head {
		return nil, 0, false, fmt.Errorf("read state %q: a value of %d bytes: %w", r.name, len(raw), errShort)
	}
	if r.ttl > 0 && int64(binary.BigEndian.Uint64(raw[1:])) <= r.s.now() {
		return nil, 0, false, nil
	}
	return raw[head:], raw[0], true, nil
}

// put writes a row of the current key without reading it. encode appends its payload.
func (r *rows) put(sub []byte, encode func(dst []byte) ([]byte, error)) error {
	raw := []byte{r.first}
	if r.ttl > 0 {
		raw = binary.BigEndian.AppendUint64(raw, uint64(r.s.now()+r.ttl))
	}
	raw, err := encode(raw)
	if err != nil {
		return r.errorf("encode", err)
	}
	r.store(sub, raw)
	return nil
}

// store writes what is to be stored of a row, nil to delete it, without reading it.
func (r *rows) store(sub, raw []byte) {
	b := r.bucket(true)
	w := b.rows[string(sub)]
	if w == nil {
		r.s.makeRoom()
		w = &row{in: r.bucket(true), sub: string(sub)}
		r.add(w)
	}
	r.write(w, raw)
}

// remove deletes a row of the current key if there is one.
func (r *rows) remove(sub []byte) error {
	_, w, err := r.load(sub)
	if err == nil && w.raw != nil {
		r.write(w, nil)
	}
	return err
}

func (r *rows) write(w *row, raw []byte) {
	switch w.written {
	case r.s.open:
	case r.s.marked:
		r.copyRow(w)
		fallthrough
	default:
		w.written = r.s.open
		r.written = append(r.written, w)
		if b := w.in; b.written != r.s.open {
			b.written = r.s.open
			r.dirty = append(r.dirty, b)
		}
	}
	r.replace(w, raw)
	w.flags |= flagHot
}

func (r *rows) replace(w *row, raw []byte) {
	r.s.held += int64(len(raw) - len(w.raw))
	w.raw = raw
}

// each calls fn for each row of the current key that begins with from or comes after
// it, in order, as it is when its turn comes. fn may use the state.
func (r *rows) each(from []byte, fn func(sub string, payload []byte, version uint8) error) error {
	var mem []string
	b := r.bucket(false)
	prefix := string(r.prefix)
	if b != nil {
		for sub := range b.rows {
			if sub >= string(from) {
				mem = append(mem, prefix+sub)
			}
		}
		slices.Sort(mem)
	}
	begin := append([]byte(prefix), from...)
	return r.s.scanRows(begin, prefixEnd([]byte(prefix)), mem, func(key string, raw []byte) error {
		sub := key[len(prefix):]
		if b := r.buckets[prefix]; b != nil {
			if w := b.rows[sub]; w != nil {
				raw = w.raw
			}
		}
		payload, version, ok, err := r.open(raw)
		if err != nil || !ok {
			return err
		}
		return fn(sub, payload, version)
	})
}

// clear deletes all rows of the current key.
func (r *rows) clear() error {
	var subs []string
	if err := r.each(nil, func(sub string, _ []byte, _ uint8) error { subs = append(subs, sub); return nil }); err != nil {
		return err
	}
	for _, sub := range subs {
		r.store([]byte(sub), nil)
	}
	return nil
}

// drop deletes an expired row; see sweeper.
func (r *rows) drop(stateKey []byte, now int64) (gone bool, err error) {
	n, err := tuple.DelimitedLen(stateKey[stateKeyPrefix:])
	if err != nil {
		return false, err
	}
	n += stateKeyPrefix
	b := r.buckets[string(stateKey[:n])]
	if b == nil {
		return true, nil
	}
	w := b.rows[string(stateKey[n:])]
	if w == nil {
		return true, nil
	}
	if w.raw == nil || w.written >= r.s.cutting.batch || int64(binary.BigEndian.Uint64(w.raw[1:])) > now {
		return false, nil
	}
	r.replace(w, nil)
	w.written = r.s.cutting.batch
	return true, nil
}

func (r *rows) changes() int { return len(r.dirty) }

func (r *rows) changedKey(i int, dst []byte) (uint64, byte, []byte) {
	b := r.dirty[i]
	return b.hash, b.tag, append(dst, b.payload...)
}

func (r *rows) mark() int {
	r.marked, r.copied, r.written = r.written, 0, r.marked[:0]
	r.dirty = r.dirty[:0]
	return len(r.marked)
}

func (r *rows) copy(limit int) int {
	n := min(limit, len(r.marked)-r.copied)
	for _, w := range r.marked[r.copied : r.copied+n] {
		if w.written == r.s.marked { // else it was copied before it changed
			r.copyRow(w)
		}
	}
	r.copied += n
	return n
}

// copyRow gives the cut that is being copied a row that it has marked.
func (r *rows) copyRow(w *row) {
	w.written = r.s.cutting.batch
	switch {
	case !r.s.cfg.Volatile:
		r.s.cutting.add(w.record())
	case w.raw == nil:
		r.forget(w)
	}
}

func (w *row) record() Record {
	return Record{Key: []byte(w.in.prefix + w.sub), Value: w.raw, Delete: w.raw == nil}
}

// evict drops rows as table.evict does entries.
func (r *rows) evict(steps int) (looked int, round bool) {
	for ; looked < steps && r.hand < len(r.clock) && r.s.held > r.s.cfg.CacheBytes; looked++ {
		switch w := r.clock[r.hand]; {
		case !r.s.mayGo(w.written, w.raw != nil):
			r.hand++
		case w.flags&flagHot != 0:
			w.flags &^= flagHot
			r.hand++
		default:
			r.forget(w) // another row takes its place in the clock
		}
	}
	if r.hand >= len(r.clock) {
		r.hand = 0
		return looked, true
	}
	return looked, false
}

// forget drops a row, and its bucket with the last one.
func (r *rows) forget(w *row) {
	last := r.clock[len(r.clock)-1]
	r.clock[w.at], last.at = last, w.at
	r.clock = r.clock[:len(r.clock)-1]
	b := w.in
	delete(b.rows, w.sub)
	r.s.held -= rowBytes + int64(len(w.sub)+len(w.raw))
	if len(b.rows) == 0 {
		delete(r.buckets, b.prefix)
		r.s.held -= bucketBytes + int64(len(b.prefix)+len(b.payload))
	}
}

func (r *rows) collect(dst []Record) ([]Record, error) {
	for _, b := range r.buckets {
		for _, w := range b.rows {
			if w.raw != nil {
				dst = append(dst, w.record())
			}
		}
	}
	return dst, nil
}

// scan calls fn for each row of a view, ordered by key group, key and row.
func (r *rows) scan(view View, fn func(key []tuple.Value, sub, payload []byte, version uint8) error) error {
	return view.Scan(r.name, func(k, raw []byte) error {
		key, sub, err := tuple.SplitDelimited(k)
		if err != nil {
			return err
		}
		vals, err := tuple.DecodeKey(key)
		if err != nil {
			return err
		}
		payload, version, ok, err := r.open(raw)
		if err != nil || !ok {
			return err
		}
		return fn(vals, sub, payload, version)
	})
}
