package txn

import (
	"maps"
	"slices"
)

// Range implements Backend.
func (b *mapBackend) Range(from, to []byte, fn func(key, value []byte) error) error {
	if b.err != nil {
		return b.err
	}
	for _, k := range slices.Sorted(maps.Keys(b.rows)) {
		if k < string(from) || to != nil && k >= string(to) {
			continue
		}
		if err := fn([]byte(k), b.rows[k]); err != nil {
			return err
		}
	}
	return nil
}
