package main

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// ledger says of each batch of a run when it was closed and became the current
// checkpoint, and what that has put into the store.
type ledger struct {
	mu        sync.Mutex
	moved     chan struct{} // closed when the head moves
	batches   map[checkpoint.BatchID]*entry
	known     map[string]bool      // files of earlier checkpoints
	newest    *checkpoint.Manifest // that was stored
	committed uint64               // tuples emitted up to the current checkpoint
	lastMoved time.Time            // when that became so, in this run
}

// entry is what a ledger says of a batch.
type entry struct {
	closed, moved time.Time
	changed       uint64 // different keys
	emitted       uint64 // tuples, up to its end

	manifest *checkpoint.Manifest
	files    int   // deltas that no checkpoint before names
	deltas   int64 // bytes of them
	bases    int64 // bytes of bases that no checkpoint before names
	papers   int64 // bytes of the manifest and the head
}

// newLedger returns the ledger of a run that begins with a checkpoint; nil: with none.
func newLedger(from *checkpoint.Manifest) *ledger {
	l := &ledger{moved: make(chan struct{}), batches: map[checkpoint.BatchID]*entry{}, known: map[string]bool{}, newest: from}
	if from != nil {
		for _, f := range filesOf(from) {
			l.known[f.Name] = true
		}
	}
	return l
}

// batch returns the entry of a batch. The caller holds mu.
func (l *ledger) batch(n checkpoint.BatchID) *entry {
	if l.batches[n] == nil {
		l.batches[n] = &entry{}
	}
	return l.batches[n]
}

// close notes the barrier of a batch.
func (l *ledger) close(n checkpoint.BatchID, changed, emitted uint64) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.batch(n)
	e.closed, e.changed, e.emitted = now, changed, emitted
}

// stored notes a manifest that has been put.
func (l *ledger) stored(m *checkpoint.Manifest, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.batch(m.Batch)
	e.manifest, l.newest = m, m
	e.papers += size
	for _, f := range filesOf(m) {
		switch {
		case l.known[f.Name]:
			continue
		case f.Base:
			e.bases += f.Size
		default:
			e.deltas += f.Size
			e.files++
		}
		l.known[f.Name] = true
	}
}

// headMoved notes that the head says something else now.
func (l *ledger) headMoved(h *checkpoint.Head, size int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, region := range h.Regions {
		current := region.Current()
		if current == nil {
			continue
		}
		if e := l.batches[current.Batch]; e != nil && e.moved.IsZero() {
			e.moved = at
			e.papers += size
			l.committed = max(l.committed, e.emitted)
			l.lastMoved = at
		}
	}
	close(l.moved)
	l.moved = make(chan struct{})
}

// await waits until something holds, which may look at the ledger: it is asked again
// whenever the head has moved.
func (l *ledger) await(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		done, moved := holds(), l.moved
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// based reports whether the newest checkpoint has bases that hold all of a batch.
func (l *ledger) based(n checkpoint.BatchID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.newest.Tasks {
		if len(t.Files) > 0 && (!t.Files[0].Base || t.Files[0].Batch < n) {
			return false
		}
	}
	return true
}

// account is what the checkpoints of a window have taken together.
type account struct {
	took    []time.Duration // sorted
	changed uint64          // different keys, of each
	objects int             // deltas and manifests
	bytes   int64           // without bases
	deltas  int64           // of bytes
	bases   int64
	last    *checkpoint.Manifest
}

// between returns the account of the checkpoints that have become current in a window.
func (l *ledger) between(from, to time.Time) (a account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var newest checkpoint.BatchID
	for n, e := range l.batches {
		if e.moved.IsZero() || e.closed.IsZero() || !e.moved.After(from) || e.moved.After(to) {
			continue
		}
		a.took = append(a.took, e.moved.Sub(e.closed))
		a.changed += e.changed
		a.objects += e.files + 1
		a.deltas += e.deltas
		a.bytes += e.deltas + e.papers
		a.bases += e.bases
		if n > newest {
			newest, a.last = n, e.manifest
		}
	}
	slices.Sort(a.took)
	return a
}

// sample returns what there is to show of an account, with entries of a size.
func (a *account) sample(entryBytes int) sample {
	n := float64(len(a.took))
	changed := float64(a.changed) * float64(entryBytes)
	return sample{
		n, quantileMS(a.took, 0.5), quantileMS(a.took, 0.99),
		float64(a.bytes) / n, float64(a.bytes) / changed, a.basesPerCheckpoint() * n / changed, float64(a.bases), float64(a.objects) / n,
	}
}

// basesPerCheckpoint returns how many bytes of bases there are for each checkpoint if
// it goes on like that: a task's bases are written anew whenever that is due.
func (a *account) basesPerCheckpoint() float64 {
	if a.last == nil || a.deltas == 0 {
		return math.NaN()
	}
	var chains [][]checkpoint.FileRef
	for _, t := range a.last.Tasks {
		var bases []checkpoint.FileRef
		for _, f := range t.Files {
			if f.Base {
				bases = append(bases, f)
			}
		}
		if len(bases) > 0 {
			chains = append(chains, bases)
		}
	}
	// The tasks have about as many keys each.
	delta := checkpoint.FileRef{Size: a.deltas / int64(len(a.took)) / int64(max(len(chains), 1))}
	perCheckpoint := 0.0
	for _, chain := range chains {
		size := int64(0)
		for _, f := range chain {
			size += f.Size
		}
		deltas := 0
		for ; !checkpoint.BaseDue(chain); deltas++ {
			chain = append(chain, delta)
		}
		perCheckpoint += float64(size) / float64(deltas)
	}
	return perCheckpoint
}

// watched tells a ledger what is put into a store.
type watched struct {
	checkpoint.Store
	ledger *ledger
}

// Put puts an object.
func (w watched) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if checkpoint.PutStep(name) != "manifest" {
		return w.Store.Put(ctx, name, body, size, crc)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if err := w.Store.Put(ctx, name, body, size, crc); err != nil { // it reads from the beginning
		return err
	}
	m, err := checkpoint.DecodeManifest(name, data)
	if err != nil {
		return err
	}
	w.ledger.stored(m, size)
	return nil
}

// SwapHead replaces the head.
func (w watched) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	v, err := w.Store.SwapHead(ctx, old, data)
	if err != nil {
		return v, err
	}
	at := time.Now()
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		return v, err
	}
	w.ledger.headMoved(h, int64(len(data)), at)
	return v, nil
}

// Link links an object.
func (w watched) Link(ctx context.Context, name, path string) error {
	return link(ctx, w.Store, name, path)
}
