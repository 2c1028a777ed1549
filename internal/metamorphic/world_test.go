package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// world is what outlives every process of a topology: its checkpoint store, and the
// systems its sinks write to. It notes what a correct engine never does.
type world struct {
	store  checkpoint.Store
	groups int

	mu        sync.Mutex
	head      *checkpoint.Head
	prepared  map[txn.TransactionID][]rec
	published map[txn.TransactionID][]rec
	markers   map[place]txn.BatchID
	staged    map[string][]rec // by component
	fences    map[place]txn.Generation
	written   map[place]map[txn.BatchID][]rec
	boards    map[string][]plank // by component, one for each key group
	wrongs    []error
}

// place is a task of a component.
type place struct {
	component string
	task      int
}

// plank is what is shown of one key group.
type plank struct {
	batch txn.BatchID
	lines []string
}

func newWorld(store checkpoint.Store, groups int) *world {
	return &world{
		store: store, groups: groups,
		prepared: map[txn.TransactionID][]rec{}, published: map[txn.TransactionID][]rec{},
		markers: map[place]txn.BatchID{}, staged: map[string][]rec{},
		fences: map[place]txn.Generation{}, written: map[place]map[txn.BatchID][]rec{},
		boards: map[string][]plank{},
	}
}

// wrong notes what should never happen. The world is locked.
func (w *world) wrong(format string, args ...any) {
	w.wrongs = append(w.wrongs, fmt.Errorf(format, args...))
}

// act lets a process do something to the world, between two moments.
func (w *world) act(l *life, what string, do func() error) error {
	l.moment(what + ".before")
	err := l.act(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return do()
	})
	l.moment(what + ".after")
	return err
}

// committed checks that batch n is committed: invariant I1. The world is locked.
func (w *world) committed(what string, n txn.BatchID) {
	var newest txn.BatchID
	if w.head != nil {
		for r := range maps.Values(w.head.Regions) {
			if c := r.Current(); c != nil {
				newest = max(newest, c.Batch)
			}
		}
	}
	if n > newest {
		w.wrong("%s: batch %d is published, and the head has %d", what, n, newest)
	}
}

// prepare keeps the output of a transaction, unseen.
func (w *world) prepare(l *life, id txn.TransactionID, rows []rec) error {
	return w.act(l, "prepare", func() error {
		if w.published[id] != nil {
			w.wrong("transaction %s is prepared after it was published", id)
		}
		w.prepared[id] = rows
		return nil
	})
}

// publish makes the output of a transaction seen.
func (w *world) publish(l *life, id txn.TransactionID) error {
	return w.act(l, "publish", func() error {
		w.committed("transaction "+id.String(), id.Batch)
		rows, ok := w.prepared[id]
		switch {
		case ok:
			w.published[id] = rows
			delete(w.prepared, id)
		case w.published[id] == nil:
			w.wrong("transaction %s is to be published and is not there", id)
			return txn.Fatal(fmt.Errorf("transaction %s was lost", id))
		}
		return nil
	})
}

func (w *world) discard(l *life, void func(txn.TransactionID) bool) error {
	return w.act(l, "discard", func() error {
		maps.DeleteFunc(w.prepared, func(id txn.TransactionID, _ []rec) bool { return void(id) })
		return nil
	})
}

// publishStaged writes records and the marker of their transaction.
func (w *world) publishStaged(l *life, id txn.TransactionID, rows []rec) error {
	return w.act(l, "stage", func() error {
		w.committed("staged transaction "+id.String(), id.Batch)
		p := place{id.Component, id.Task}
		if w.markers[p] >= id.Batch {
			return nil
		}
		w.markers[p] = id.Batch
		w.staged[id.Component] = append(w.staged[id.Component], rows...)
		return nil
	})
}

var errFenced = errors.New("fenced by a newer generation")

// fence keeps older generations of a task from writing in order. restored is the batch
// that the task goes on from.
func (w *world) fence(l *life, p place, g txn.Generation, restored txn.BatchID) error {
	return w.act(l, "fence", func() error {
		if g < w.fences[p] {
			return txn.Fatal(errFenced)
		}
		w.fences[p] = g
		for n := range w.written[p] {
			if n > restored+1 {
				w.wrong("%v has written batch %d and is restored from %d", p, n, restored)
			}
		}
		return nil
	})
}

// write replaces what a task has written for a batch.
func (w *world) write(l *life, p place, g txn.Generation, n txn.BatchID, rows []rec) error {
	return w.act(l, "write", func() error {
		if g < w.fences[p] {
			return txn.Fatal(errFenced)
		}
		if n > 1 {
			w.committed(fmt.Sprint(p, " is to write the batch after"), n-1)
		}
		if w.written[p] == nil {
			w.written[p] = map[txn.BatchID][]rec{}
		}
		w.written[p][n] = rows
		return nil
	})
}

// show replaces what is shown of key groups [from, to), unless it is newer. Each line
// begins with its key.
func (w *world) show(l *life, component string, n txn.BatchID, from, to int, lines map[int][]string) error {
	return w.act(l, "show", func() error {
		w.committed("component "+component, n)
		if w.boards[component] == nil {
			w.boards[component] = make([]plank, w.groups)
		}
		for g := from; g < to; g++ {
			if p := &w.boards[component][g]; n >= p.batch {
				*p = plank{n, lines[g]}
			}
		}
		for g := range lines {
			if g < from || g >= to {
				w.wrong("component %s shows key group %d, and its task has %d to %d", component, g, from, to)
			}
		}
		return nil
	})
}

// outcomeOf returns what a component has shown.
func (w *world) outcomeOf(component string) outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := slices.Clone(w.staged[component])
	for id, more := range w.published {
		if id.Component == component {
			rows = append(rows, more...)
		}
	}
	for p, batches := range w.written {
		if p.component == component {
			rows = append(rows, slices.Concat(slices.Collect(maps.Values(batches))...)...)
		}
	}
	o := outcomeOf(rows)
	for _, p := range w.boards[component] {
		for _, line := range p.lines {
			o[line]++
		}
	}
	return o
}

// wrong returns all that was wrong, and what is left over.
func (w *world) errors() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := slices.Clone(w.wrongs)
	for id := range w.prepared {
		errs = append(errs, fmt.Errorf("transaction %s was left prepared", id))
	}
	return errors.Join(errs...)
}

// groupOf returns the key group of a key.
func (w *world) groupOf(key []tuple.Value) int {
	h, ok := tuple.HashKey(key)
	if !ok {
		panic(fmt.Sprintf("%v cannot be a key", key))
	}
	return tuple.KeyGroup(h, w.groups)
}

// mortalStore is the checkpoint store as one process sees it.
type mortalStore struct {
	w *world
	l *life
}

// do calls the store between two moments. It can fail before anything is done, and
// after, so that nobody learns that it was done.
func (s mortalStore) do(what string, call func() error) error {
	s.l.moment(what + ".before")
	if err := s.l.call(what + ".before"); err != nil {
		return err
	}
	err := s.l.act(call)
	s.l.moment(what + ".after")
	return errors.Join(s.l.call(what+".after"), err)
}

func (s mortalStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	kind, _, _ := strings.Cut(name, "/")
	return s.do("put "+kind, func() error { return s.w.store.Put(ctx, name, body, size, crc) })
}

func (s mortalStore) Open(ctx context.Context, name string) (body io.ReadCloser, size int64, err error) {
	err = s.do("get", func() (err error) {
		body, size, err = s.w.store.Open(ctx, name)
		return err
	})
	if err != nil && body != nil {
		err = errors.Join(err, body.Close())
	}
	return body, size, err
}

func (s mortalStore) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.ObjectInfo, error] {
	s.l.moment("list")
	return s.w.store.List(ctx, prefix)
}

func (s mortalStore) Delete(ctx context.Context, name string) error {
	return s.do("delete", func() error { return s.w.store.Delete(ctx, name) })
}

func (s mortalStore) ReadHead(ctx context.Context) (data []byte, v checkpoint.Version, err error) {
	data, v, err = s.w.store.ReadHead(ctx)
	// Not before: one that has not read it yet would be a successor when it wakes up.
	s.l.moment("read head")
	return data, v, err
}

func (s mortalStore) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (v checkpoint.Version, err error) {
	err = s.do("swap", func() (err error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		if v, err = s.w.store.SwapHead(ctx, old, data); err == nil {
			s.w.moved(data)
		}
		return err
	})
	return v, err
}

func (s mortalStore) Close() error { return nil }

// moved notes what the head says now. The world is locked.
func (w *world) moved(data []byte) {
	h, err := checkpoint.DecodeHead("head", data)
	switch {
	case err != nil:
		w.wrong("the head was moved to what cannot be read: %w", err)
	case w.head != nil && h.Generation < w.head.Generation:
		w.wrong("the head went from generation %d to %d", w.head.Generation, h.Generation)
	}
	w.head = h
}
