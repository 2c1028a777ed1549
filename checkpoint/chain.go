package checkpoint

import (
	"cmp"
	"slices"
)

// A chain is what holds the keyed state of one task: bases, then deltas in batch
// order. A new base is due when the deltas outweigh the old one or are many.
const (
	chainDeltasMax     = 60
	chainDeltaBytesMin = 1 << 20 // smaller chains are not worth a new base
)

// ClipChain returns the chain of a task that owns the key groups [from, to), given
// the files of all tasks that owned them before: each file clipped to the range,
// once if it comes in adjoining parts, bases first, then deltas in batch order.
// Files of different tasks count for different groups, so that their order among
// each other means nothing.
func ClipChain(files []FileRef, from, to int) []FileRef {
	var chain []FileRef
	for _, f := range files {
		f.GroupFrom, f.GroupTo = max(f.GroupFrom, from), min(f.GroupTo, to)
		if f.GroupFrom < f.GroupTo {
			chain = append(chain, f)
		}
	}
	rank := func(f FileRef) int {
		if f.Base {
			return 0
		}
		return 1
	}
	slices.SortFunc(chain, func(a, b FileRef) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Batch, b.Batch),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.GroupFrom, b.GroupFrom))
	})
	joined := chain[:0]
	for _, f := range chain {
		if n := len(joined); n > 0 && joined[n-1].Name == f.Name && joined[n-1].GroupTo >= f.GroupFrom {
			joined[n-1].GroupTo = max(joined[n-1].GroupTo, f.GroupTo)
			continue
		}
		joined = append(joined, f)
	}
	return joined
}

// BaseDue reports whether a chain has so many or so large deltas that a new base
// should be written.
func BaseDue(chain []FileRef) bool {
	var bases, deltas int64
	count := 0
	for _, f := range chain {
		if f.Base {
			bases += f.Size
		} else {
			deltas += f.Size
			count++
		}
	}
	return count > chainDeltasMax || deltas > max(bases, chainDeltaBytesMin)
}

// Rebase returns the chain that begins with bases, which hold the state as of batch
// m, and goes on with the deltas of chain that are newer.
func Rebase(chain, bases []FileRef, m BatchID) []FileRef {
	next := slices.Clone(bases)
	for _, f := range chain {
		if !f.Base && f.Batch > m {
			next = append(next, f)
		}
	}
	return next
}
