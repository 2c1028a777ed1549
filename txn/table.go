package txn

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/isobar-io/isobar/tuple"
)

// table maps keys to values of one state in memory. Entries live in chunks that
// never move; an open-addressing index (linear probing, at most two thirds full)
// finds them by the low bits of the hash that the tuple carried.
type table[T any] struct {
	s     *State
	name  string
	id    uint16
	first byte // first byte of stored values: codec version, or kind of aggregate
	codec Codec[T]

	aggregate bool
	plain     bool // values need neither copying nor accounting

	index  []uint64 // 0 = free, else low 32 bits of the hash << 32 | entry number + 1
	chunks []*[chunkEntries]entry[T]
	n      int
	dirty  []*entry[T]
	varlen int64 // bytes of keys and of what values refer to
}

type entry[T any] struct {
	hash  uint64
	key   string // payload of the encoded key
	val   T
	cut   BatchID // batch of the last cut that held it
	tag   byte
	flags uint8
}

const (
	flagPresent uint8 = 1 << iota // the key has a value
	flagDirty                     // written since the last cut
	flagHot                       // touched since the last eviction
)

const chunkEntries = 1 << 10

func (t *table[T]) entry(i int) *entry[T] {
	u := uint(i)
	return &t.chunks[u/chunkEntries][u%chunkEntries]
}

// find returns the entry of the state's current key, or nil.
func (t *table[T]) find() *entry[T] { return t.lookup(t.s.hash, t.s.tag, t.s.payload) }

// lookup returns the entry of a key, or nil.
func (t *table[T]) lookup(hash uint64, tag byte, payload string) *entry[T] {
	if len(t.index) == 0 {
		return nil
	}
	index := t.index
	mask := uint64(len(index) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		slot := index[i]
		if slot == 0 {
			return nil
		}
		if uint32(slot>>32) != uint32(hash) {
			continue
		}
		if e := t.entry(int(uint32(slot)) - 1); e.hash == hash && e.tag == tag && e.key == payload {
			return e
		}
	}
}

// load returns the entry of the current key, reading it from the backend if it is
// not in memory; a key without a value gets an entry too.
func (t *table[T]) load() (*entry[T], error) {
	if e := t.find(); e != nil {
		e.flags |= flagHot
		return e, nil
	}
	s := t.s
	if err := s.hasKey(); err != nil {
		return nil, err
	}
	e := entry[T]{hash: s.hash, tag: s.tag, flags: flagHot}
	if !s.cfg.Backend.Empty() {
		if err := t.fetch(&e); err != nil {
			return nil, err
		}
	}
	e.key = strings.Clone(s.payload)
	return t.insert(e), nil
}

// fetch gives e the value that the backend has for the current key.
func (t *table[T]) fetch(e *entry[T]) error {
	s := t.s
	key := s.appendKey(AppendStateKey(nil, tuple.KeyGroup(s.hash, s.cfg.Groups), t.id, nil))
	raw, ok, err := s.cfg.Backend.Get(key)
	if err == nil && ok {
		e.val, err = t.decode(raw)
		e.flags |= flagPresent
	}
	if err != nil {
		return fmt.Errorf("read state %q of key %s: %w", t.name, tuple.FormatKey(key[stateKeyPrefix:]), err)
	}
	return nil
}

func (t *table[T]) decode(raw []byte) (T, error) {
	var zero T
	if len(raw) == 0 {
		return zero, fmt.Errorf("decode state %q: the value is empty", t.name)
	}
	version := raw[0]
	if t.aggregate {
		if raw[0] != t.first {
			return zero, fmt.Errorf("decode state %q: value is of aggregate kind %d, not %d", t.name, raw[0], t.first)
		}
		version = t.codec.Version
	}
	v, err := t.codec.Decode(raw[1:], version)
	if err != nil {
		return zero, fmt.Errorf("decode state %q with codec %s: %w", t.name, t.codec.Name, err)
	}
	return v, nil
}

// size returns the bytes that the entry's value refers to.
func (t *table[T]) size(e *entry[T]) int64 {
	if t.codec.Size == nil || e.flags&flagPresent == 0 {
		return 0
	}
	return int64(t.codec.Size(e.val))
}

// touch marks an entry as written in the open batch.
func (t *table[T]) touch(e *entry[T]) {
	if e.flags&flagDirty == 0 {
		e.flags |= flagDirty
		t.dirty = append(t.dirty, e)
	}
}

func (t *table[T]) insert(e entry[T]) *entry[T] {
	if 3*(t.n+1) > 2*len(t.index) {
		t.grow()
	}
	if t.n/chunkEntries == len(t.chunks) {
		t.chunks = append(t.chunks, new([chunkEntries]entry[T]))
	}
	p := t.entry(t.n)
	*p = e
	t.n++
	t.varlen += int64(len(e.key)) + t.size(p)
	t.place(uint64(uint32(e.hash))<<32 | uint64(t.n))
	return p
}

func (t *table[T]) place(slot uint64) {
	mask := uint64(len(t.index) - 1)
	i := (slot >> 32) & mask
	for t.index[i] != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = slot
}

func (t *table[T]) grow() {
	old := t.index
	t.index = make([]uint64, max(64, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			t.place(slot)
		}
	}
}

func (t *table[T]) changes() int { return len(t.dirty) }

func (t *table[T]) changedKey(i int) (uint64, byte, string) {
	e := t.dirty[i]
	return e.hash, e.tag, e.key
}

func (t *table[T]) cut(dst []Record, arena []byte, batch BatchID) ([]Record, []byte, error) {
	for _, e := range t.dirty {
		var r Record
		var err error
		if r, arena, err = t.record(e, arena); err != nil {
			return dst, arena, err
		}
		dst = append(dst, r)
		e.flags &^= flagDirty
		e.cut = batch
	}
	t.dirty = t.dirty[:0]
	return dst, arena, nil
}

// record encodes an entry into arena. When arena grows, earlier records keep the
// old array alive.
func (t *table[T]) record(e *entry[T], arena []byte) (Record, []byte, error) {
	at := len(arena)
	arena = AppendStateKey(arena, tuple.KeyGroup(e.hash, t.s.cfg.Groups), t.id, nil)
	arena = appendTagged(arena, e.tag, e.key)
	r := Record{Key: arena[at:len(arena):len(arena)]}
	if e.flags&flagPresent == 0 {
		r.Delete = true
		return r, arena, nil
	}
	at = len(arena)
	arena = append(arena, t.first)
	arena, err := t.codec.Append(arena, e.val)
	if err != nil {
		return r, arena, fmt.Errorf("encode state %q of key %s with codec %s: %w",
			t.name, tuple.FormatKey(r.Key[stateKeyPrefix:]), t.codec.Name, err)
	}
	r.Value = arena[at:len(arena):len(arena)]
	return r, arena, nil
}

func (t *table[T]) bytes() int64 {
	return int64(len(t.chunks))*chunkEntries*int64(unsafe.Sizeof(entry[T]{})) + int64(8*len(t.index)) + t.varlen
}

// evict rebuilds the table with what must stay (dirty, or not yet applied) and, as
// far as the budget goes, what was touched since the last eviction.
func (t *table[T]) evict(applied BatchID, budget int64) {
	old := *t
	t.index, t.chunks, t.dirty, t.n, t.varlen = nil, nil, nil, 0, 0
	for i := range old.n {
		e := old.entry(i)
		must := e.flags&flagDirty != 0 || e.cut > applied
		if !must && (e.flags&flagHot == 0 || t.bytes() >= budget) {
			continue
		}
		kept := *e
		kept.flags &^= flagHot
		p := t.insert(kept)
		if p.flags&flagDirty != 0 {
			t.dirty = append(t.dirty, p)
		}
	}
}

// collect returns all present entries as records.
func (t *table[T]) collect(dst []Record) ([]Record, error) {
	for i := range t.n {
		e := t.entry(i)
		if e.flags&flagPresent == 0 {
			continue
		}
		r, _, err := t.record(e, nil)
		if err != nil {
			return dst, err
		}
		dst = append(dst, r)
	}
	return dst, nil
}

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

func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
