package txn

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/tuple"
)

// errStop ends a scan of the backend before its end.
var errStop = errors.New("stop")

// prefixEnd returns the first key after all that begin with prefix; nil if there is
// none.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// Bounds of how many rows are read from the backend at once.
const (
	scanRowsMin = 32
	scanRowsMax = 1024
)

// scanRows calls fn for each state key in [from, to) that the backend holds or that is
// in mem, which is sorted: in order, each once. raw is what the backend has for the
// key, nil if it has nothing or was not asked. The backend is not being read during the
// call, so that fn may use the state.
func (s *State) scanRows(from, to []byte, mem []string, fn func(key string, raw []byte) error) error {
	more := !s.cfg.Backend.Empty()
	for limit := scanRowsMin; more; limit = min(2*limit, scanRowsMax) {
		var chunk []Record
		err := s.cfg.Backend.Range(from, to, func(key, value []byte) error {
			chunk = append(chunk, Record{Key: bytes.Clone(key), Value: bytes.Clone(value)})
			if len(chunk) == limit {
				return errStop
			}
			return nil
		})
		if more = errors.Is(err, errStop); err != nil && !more {
			return err
		}
		for _, r := range chunk {
			key := textOf(r.Key)
			for len(mem) > 0 && mem[0] <= key {
				k := mem[0]
				if mem = mem[1:]; k == key {
					break
				}
				if err := fn(k, nil); err != nil {
					return err
				}
			}
			if err := fn(key, r.Value); err != nil {
				return err
			}
		}
		if more {
			from = append(bytes.Clone(chunk[len(chunk)-1].Key), 0)
		}
	}
	for _, k := range mem {
		if err := fn(k, nil); err != nil {
			return err
		}
	}
	return nil
}

// scanPrefix calls fn for each key of the task that begins with prefix, as its value
// is now.
func (t *table[T]) scanPrefix(prefix []tuple.Value, fn func(key []tuple.Value, val T) error) error {
	s := t.s
	enc, err := tuple.AppendKey(nil, prefix...)
	if err != nil {
		return fmt.Errorf("scan state %q by prefix %v: %w", t.name, prefix, err)
	}
	begin := tuple.AppendDelimited(nil, enc)
	begin = begin[:len(begin)-1]
	mem := t.inMemory(begin, enc)
	visit := func(key string, raw []byte) error {
		val, ok, err := t.current(key, raw)
		if err != nil || !ok {
			return err
		}
		vals, err := tuple.DecodeKey([]byte(key[stateKeyPrefix:]))
		if err != nil {
			return err
		}
		return fn(vals, val)
	}
	// A key of just these values has another form if it ends with a text.
	exact := -1
	if hash, ok := tuple.HashKey(prefix); ok && len(enc) > 0 && !bytes.Equal(enc, begin) {
		exact = tuple.KeyGroup(hash, s.cfg.Groups)
	}
	scan := func(from, to []byte) error {
		if err := s.scanRows(from, to, within(mem, from, to), visit); err != nil {
			return fmt.Errorf("scan state %q by prefix %v: %w", t.name, prefix, err)
		}
		return nil
	}
	for g := s.cfg.From; g < s.cfg.To; g++ {
		from := AppendStateKey(nil, g, t.id, begin)
		if err := scan(from, prefixEnd(from)); err != nil {
			return err
		}
		if g != exact {
			continue
		}
		from = AppendStateKey(nil, g, t.id, enc)
		if err := scan(from, append(bytes.Clone(from), 0)); err != nil {
			return err
		}
	}
	return nil
}

// within returns the part of sorted keys that is in [from, to).
func within(keys []string, from, to []byte) []string {
	i, _ := slices.BinarySearch(keys, string(from))
	j := len(keys)
	if to != nil {
		j, _ = slices.BinarySearch(keys, string(to))
	}
	return keys[i:j]
}

// inMemory returns the sorted state keys of entries whose key begins with begin or is
// exact.
func (t *table[T]) inMemory(begin, exact []byte) []string {
	var keys []string
	var key []byte
	for i := range t.n {
		e := t.entry(i)
		if e.flags&flagFree != 0 {
			continue
		}
		key = t.appendKey(key[:0], e)
		if k := key[stateKeyPrefix:]; bytes.HasPrefix(k, begin) || bytes.Equal(k, exact) {
			keys = append(keys, string(key))
		}
	}
	slices.Sort(keys)
	return keys
}

// current returns the value of a state key as it is now; raw is what the backend has.
func (t *table[T]) current(key string, raw []byte) (val T, ok bool, err error) {
	hash, tag, payload, err := splitKey([]byte(key[stateKeyPrefix:]))
	if err != nil {
		return val, false, err
	}
	if e := t.lookup(hash, tag, payload); e != nil {
		if e.flags&flagPartial != 0 {
			if err := t.complete(e); err != nil {
				return val, false, err
			}
		}
		if e.flags&flagPresent == 0 {
			return val, false, nil
		}
		return t.clone(e.val), true, nil
	}
	if raw == nil {
		return val, false, nil
	}
	val, err = t.decode(raw)
	return val, err == nil, err
}
