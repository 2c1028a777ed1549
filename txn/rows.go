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
	dirty   []*bucket
	held    int64  // estimate of the bytes in memory
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
	dirty   []*row
}

type row struct {
	sub   string
	raw   []byte  // as stored, never changed but replaced; nil = there is no such row
	cut   BatchID // batch of the last cut that held it
	flags uint8
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
		r.held += bucketBytes + int64(len(b.prefix)+len(b.payload))
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
	w := &row{sub: string(sub), flags: flagHot}
	if !r.s.cfg.Backend.Empty() {
		raw, ok, err := r.s.cfg.Backend.Get(append(r.prefix, sub...))
		if err != nil {
			return nil, nil, r.errorf("read", err)
		}
		if ok {
			w.raw = raw
		}
	}
	r.add(b, w)
	return b, w, nil
}

func (r *rows) add(b *bucket, w *row) {
	b.rows[w.sub] = w
	r.held += rowBytes + int64(len(w.sub)+len(w.raw))
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
		w = &row{sub: string(sub)}
		r.add(b, w)
	}
	r.write(b, w, raw)
}

// remove deletes a row of the current key if there is one.
func (r *rows) remove(sub []byte) error {
	b, w, err := r.load(sub)
	if err == nil && w.raw != nil {
		r.write(b, w, nil)
	}
	return err
}

func (r *rows) write(b *bucket, w *row, raw []byte) {
	r.held += int64(len(raw) - len(w.raw))
	w.raw = raw
	w.flags |= flagHot
	if w.flags&flagDirty != 0 {
		return
	}
	w.flags |= flagDirty
	if len(b.dirty) == 0 {
		r.dirty = append(r.dirty, b)
	}
	b.dirty = append(b.dirty, w)
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
	if w != nil && w.raw != nil && int64(binary.BigEndian.Uint64(w.raw[1:])) <= now {
		r.write(b, w, nil)
	}
	return w == nil, nil
}

func (r *rows) changes() int { return len(r.dirty) }

func (r *rows) changedKey(i int) (uint64, byte, string) {
	b := r.dirty[i]
	return b.hash, b.tag, b.payload
}

func (r *rows) cut(dst []Record, arena []byte, batch BatchID) ([]Record, []byte, error) {
	for _, b := range r.dirty {
		for _, w := range b.dirty {
			dst = append(dst, b.record(w))
			w.flags &^= flagDirty
			w.cut = batch
			if r.s.cfg.Volatile && w.raw == nil {
				r.forget(b, w)
			}
		}
		b.dirty = b.dirty[:0]
	}
	r.dirty = r.dirty[:0]
	return dst, arena, nil
}

func (b *bucket) record(w *row) Record {
	return Record{Key: []byte(b.prefix + w.sub), Value: w.raw, Delete: w.raw == nil}
}

func (r *rows) bytes() int64 { return r.held }

// evict drops rows that are as in the backend: those that were not touched since the
// last eviction, and others until the rest fits into the budget.
func (r *rows) evict(applied BatchID, budget int64) {
	for _, b := range r.buckets {
		for _, w := range b.rows {
			must := w.flags&flagDirty != 0 || w.cut > applied
			if !must && (w.flags&flagHot == 0 || r.held > budget) {
				r.forget(b, w)
				continue
			}
			w.flags &^= flagHot
		}
	}
}

// forget drops a row, and its bucket with the last one.
func (r *rows) forget(b *bucket, w *row) {
	delete(b.rows, w.sub)
	r.held -= rowBytes + int64(len(w.sub)+len(w.raw))
	if len(b.rows) == 0 {
		delete(r.buckets, b.prefix)
		r.held -= bucketBytes + int64(len(b.prefix)+len(b.payload))
	}
}

func (r *rows) collect(dst []Record) ([]Record, error) {
	for _, b := range r.buckets {
		for _, w := range b.rows {
			if w.raw != nil {
				dst = append(dst, b.record(w))
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
