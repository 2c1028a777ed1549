package txn

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/isobar-io/isobar/tuple"
)

// table maps keys to values of one state in memory. Entries live in chunks that never
// move; an index finds them by the low bits of the hash that the tuple carried.
type table[T any] struct {
	s     *State
	name  string
	id    uint16
	first byte // first byte of stored values: codec version, or kind of aggregate
	codec Codec[T]

	aggregate bool
	plain     bool // values need neither copying nor accounting
	// merge, if it is set, combines values that are exact in any order, so that what is
	// added to a key that is not in memory need not know what it has.
	merge func(a, b T) T

	index  index
	chunks []*[chunkEntries]entry[T]
	n      int       // entries that were ever in use
	free   []uint32  // numbers of those that are not now
	long   textStore // payloads of long keys
	dirty  []*entry[T]
	hand   int // the next entry that evict looks at

	// The entry that was last found or made for a current key, and State.selected then:
	// who reads a key and then writes it looks it up once.
	last   *entry[T]
	lastAt uint64

	marked []*entry[T] // by the cut that is being copied
	copied int         // how many of them are done with
}

// entry is what memory knows of a key.
type entry[T any] struct {
	hash  uint64
	key   shortKey
	tag   byte
	flags uint8
	// written tells what knows the value: 0 = the backend; a batch = the cut of that
	// batch; State.marked or State.open = a cut that is yet to be copied.
	written BatchID
	val     T
}

const (
	flagPresent uint8 = 1 << iota // the key has a value
	flagPartial                   // the value is what was added to the one that cuts and backend have
	flagHot                       // touched since evict has looked
	flagFree                      // not in use
)

const chunkEntries = 1 << 10

func (t *table[T]) entry(i int) *entry[T] {
	u := uint(i)
	return &t.chunks[u/chunkEntries][u%chunkEntries]
}

// find returns the entry of the state's current key, or nil.
func (t *table[T]) find() *entry[T] {
	if t.lastAt != t.s.selected {
		t.last, t.lastAt = t.lookup(t.s.hash, t.s.tag, t.s.payload), t.s.selected
	}
	return t.last
}

// lookup returns the entry of a key, or nil.
func (t *table[T]) lookup(hash uint64, tag byte, payload string) *entry[T] {
	size := sizeOf(payload)
	slots := &t.index.segment(hash).slots
	for i := hash & segmentMask; ; i = (i + 1) & segmentMask {
		slot := slots[i]
		if slot == 0 {
			return nil
		}
		if uint32(slot>>32) != uint32(hash) {
			continue
		}
		e := t.entry(int(uint32(slot)) - 1)
		if e.hash == hash && e.tag == tag && e.key.size == size && t.payload(e) == payload {
			return e
		}
	}
}

// load returns the entry of the current key with its whole value, reading it from the
// backend if it is not in memory; a key without a value gets an entry too.
func (t *table[T]) load() (*entry[T], error) {
	e := t.find()
	switch {
	case e == nil:
		return t.fetch()
	case e.flags&flagPartial != 0:
		if err := t.complete(e); err != nil {
			return nil, err
		}
	}
	e.flags |= flagHot
	return e, nil
}

// fetch makes an entry for the current key, with the value that the backend has.
func (t *table[T]) fetch() (*entry[T], error) {
	s := t.s
	if err := s.hasKey(); err != nil {
		return nil, err
	}
	e := entry[T]{flags: flagHot}
	if !s.cfg.Backend.Empty() {
		key := s.appendKey(AppendStateKey(nil, tuple.KeyGroup(s.hash, s.cfg.Groups), t.id, nil))
		raw, _, err := s.cfg.Backend.Get(key)
		if err == nil && raw != nil {
			e.val, err = t.decode(raw)
			e.flags |= flagPresent
		}
		if err != nil {
			return nil, t.errorf("read", key, err)
		}
	}
	return t.insert(e), nil
}

// errorf wraps an error about a state key.
func (t *table[T]) errorf(what string, key []byte, err error) error {
	return fmt.Errorf("%s state %q of key %s: %w", what, t.name, tuple.FormatKey(key[stateKeyPrefix:]), err)
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

// touch says that an entry is about to change: a cut that has marked it gets a copy
// first. The entry may have lost its value when touch returns, if it was partial.
func (t *table[T]) touch(e *entry[T]) {
	if e.written == t.s.open {
		return
	}
	if e.written == t.s.marked {
		t.copyEntry(e)
	}
	e.written = t.s.open
	e.flags |= flagHot
	t.dirty = append(t.dirty, e)
}

// insert adds an entry for the current key.
func (t *table[T]) insert(e entry[T]) *entry[T] {
	e.hash, e.tag = t.s.hash, t.s.tag
	e.key.set(t.s.payload, &t.long)
	t.s.makeRoom()
	i := t.n
	if last := len(t.free) - 1; last >= 0 {
		i, t.free = int(t.free[last]), t.free[:last]
	} else {
		if i/chunkEntries == len(t.chunks) {
			t.chunks = append(t.chunks, new([chunkEntries]entry[T]))
		}
		t.n++
	}
	p := t.entry(i)
	*p = e
	t.index.add(e.hash, i)
	t.s.held += t.cost(p)
	t.last, t.lastAt = p, t.s.selected
	return p
}

// cost returns the bytes that an entry occupies.
func (t *table[T]) cost(e *entry[T]) int64 {
	n := int64(unsafe.Sizeof(*e)) + segmentSlots*8/segmentFull + t.size(e)
	if e.key.size == longKey {
		n += int64(len(t.payload(e))) + int64(unsafe.Sizeof(""))
	}
	return n
}

// payload returns the payload of an entry's key. That of a short one is valid as long as
// the entry.
func (t *table[T]) payload(e *entry[T]) string {
	if e.key.size == longKey {
		return t.long.texts[e.key.number()]
	}
	return e.key.text()
}

// evict looks at some entries in turn, drops those of which cuts or backend know all
// and that were not touched since it last looked, and returns how many it has looked
// at and whether it has come round. The clock of second chances is Corbató's (1968).
func (t *table[T]) evict(steps int) (looked int, round bool) {
	for ; looked < steps && t.hand < t.n; looked++ {
		i := t.hand
		t.hand++
		e := t.entry(i)
		switch {
		case e.flags&flagFree != 0 || !t.s.mayGo(e.written, e.flags&flagPresent != 0):
		case e.flags&flagHot != 0 && e.flags&flagPartial == 0:
			e.flags &^= flagHot
		default:
			t.index.remove(e.hash, i)
			t.s.held -= t.cost(e)
			if e.key.size == longKey {
				t.long.remove(e.key.number())
			}
			*e = entry[T]{flags: flagFree}
			t.last, t.lastAt = nil, 0 // it may have been this one
			t.free = append(t.free, uint32(i))
		}
		if t.s.held <= t.s.cfg.CacheBytes {
			break
		}
	}
	if t.hand == t.n {
		t.hand = 0
		return looked, true
	}
	return looked, false
}

func (t *table[T]) changes() int { return len(t.dirty) }

func (t *table[T]) changedKey(i int, dst []byte) (hash uint64, tag byte, payload []byte) {
	e := t.dirty[i]
	return e.hash, e.tag, append(dst, t.payload(e)...)
}

// mark makes what was written the entries that the next copies are of, and returns
// how many there are.
func (t *table[T]) mark() int {
	t.marked, t.copied, t.dirty = t.dirty, 0, t.marked[:0]
	return len(t.marked)
}

// copy copies marked entries and returns how many; fewer than limit are all.
func (t *table[T]) copy(limit int) int {
	n := min(limit, len(t.marked)-t.copied)
	for _, e := range t.marked[t.copied : t.copied+n] {
		if e.written == t.s.marked { // else it was copied before it changed
			t.copyEntry(e)
		}
	}
	t.copied += n
	return n
}

// copyEntry gives the cut that is being copied an entry that it has marked.
func (t *table[T]) copyEntry(e *entry[T]) {
	c := t.s.cutting
	e.written = c.batch
	if !t.s.cfg.Volatile {
		c.add(t.record(c, e))
	}
	if e.flags&flagPartial != 0 { // what was added is in the cut now
		var zero T
		e.val = zero
		e.flags &^= flagPresent
	}
}

// appendKey appends the state key of an entry.
func (t *table[T]) appendKey(dst []byte, e *entry[T]) []byte {
	dst = AppendStateKey(dst, tuple.KeyGroup(e.hash, t.s.cfg.Groups), t.id, nil)
	return appendTagged(dst, e.tag, t.payload(e))
}

// record encodes an entry as a record of a cut.
func (t *table[T]) record(m *Marked, e *entry[T]) Record {
	r := Record{Key: m.keep(t.appendKey(m.room(stateKeyPrefix+1+len(t.payload(e))), e))}
	if e.flags&flagPresent == 0 {
		r.Delete = true
		return r
	}
	value, err := t.codec.Append(append(m.room(valueRoom), t.first), e.val)
	if err != nil {
		m.fail(t.errorf("encode with codec "+t.codec.Name, r.Key, err))
	}
	r.Value = m.keep(value)
	r.Merge = e.flags&flagPartial != 0
	return r
}

// collect returns all present entries as records.
func (t *table[T]) collect(dst []Record) ([]Record, error) {
	c := new(Marked)
	for i := range t.n {
		if e := t.entry(i); e.flags&flagPresent != 0 {
			dst = append(dst, t.record(c, e))
		}
	}
	return dst, c.err
}

// textStore keeps texts by number.
type textStore struct {
	texts []string
	free  []uint64
}

// add keeps a copy of s.
func (x *textStore) add(s string) uint64 {
	s = strings.Clone(s)
	if last := len(x.free) - 1; last >= 0 {
		i := x.free[last]
		x.free = x.free[:last]
		x.texts[i] = s
		return i
	}
	x.texts = append(x.texts, s)
	return uint64(len(x.texts) - 1)
}

func (x *textStore) remove(i uint64) {
	x.texts[i] = ""
	x.free = append(x.free, i)
}

func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
