package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/isobar-io/isobar/tuple"
)

// The limit is what the machine gives to the same work when it is written by hand
// for nothing but this: goroutines for spouts, splitters and counters, words in
// recycled slabs over channels, each key hashed once, counts in a table made for
// it. It can lose everything and take nothing back.

const (
	linesPerSlab   = 256
	wordsPerSlab   = 1024
	slabsPerTarget = 16
)

type hashedWord struct {
	text string
	hash uint64
}

// slab is what travels: items of one sender, who gets it back when they are read.
type slab[T any] struct {
	items []T
	home  chan *slab[T]
}

// outlet is a sender's end: an open slab for each receiver. It waits when all its
// slabs are away.
type outlet[T any] struct {
	to   []chan *slab[T]
	open []*slab[T]
	home chan *slab[T]
}

func newOutlet[T any](to []chan *slab[T], size int) *outlet[T] {
	o := &outlet[T]{to: to, home: make(chan *slab[T], len(to)*slabsPerTarget)}
	for range cap(o.home) {
		o.home <- &slab[T]{make([]T, 0, size), o.home}
	}
	for range to {
		o.open = append(o.open, <-o.home)
	}
	return o
}

func (o *outlet[T]) add(target int, item T) {
	s := o.open[target]
	s.items = append(s.items, item)
	if len(s.items) == cap(s.items) {
		o.send(target)
	}
}

func (o *outlet[T]) send(target int) {
	o.to[target] <- o.open[target]
	s := <-o.home
	s.items = s.items[:0]
	o.open[target] = s
}

func (o *outlet[T]) flush() {
	for target := range o.open {
		o.to[target] <- o.open[target]
	}
}

// runLimit counts the words of a text until ctx ends or, if passes is not 0,
// every spout has read it so often. It returns the table of each counter and adds
// up what they have counted while they run.
func runLimit(ctx context.Context, text []string, s shape, passes int, counted []paddedCounter) []*wordTable {
	lines := inlets[string](s.splits, s.spouts)
	words := inlets[hashedWord](s.counts, s.splits)
	tables := make([]*wordTable, s.counts)

	var spouts, splits, counts sync.WaitGroup
	for range s.spouts {
		spouts.Go(func() { limitSpout(ctx, text, passes, newOutlet(lines, linesPerSlab)) })
	}
	for i := range s.splits {
		splits.Go(func() { limitSplit(lines[i], newOutlet(words, wordsPerSlab)) })
	}
	for i := range s.counts {
		counts.Go(func() { tables[i] = limitCount(words[i], &counted[i].n) })
	}
	spouts.Wait()
	closeAll(lines)
	splits.Wait()
	closeAll(words)
	counts.Wait()
	return tables
}

// inlets makes the receiving ends, each with room for all that its senders have.
func inlets[T any](receivers, senders int) []chan *slab[T] {
	in := make([]chan *slab[T], receivers)
	for i := range in {
		in[i] = make(chan *slab[T], receivers*senders*slabsPerTarget)
	}
	return in
}

func closeAll[T any](cs []chan T) {
	for _, c := range cs {
		close(c)
	}
}

// limitSpout deals slabs of lines to the splitters in turn.
func limitSpout(ctx context.Context, text []string, passes int, out *outlet[string]) {
	defer out.flush()
	target := 0
	for pass := 0; passes == 0 || pass < passes; pass++ {
		for _, line := range text {
			s := out.open[target]
			s.items = append(s.items, line)
			if len(s.items) < cap(s.items) {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			out.send(target)
			target = (target + 1) % len(out.to)
		}
	}
}

// limitSplit sends each word to the counter that its hash names.
func limitSplit(in <-chan *slab[string], out *outlet[hashedWord]) {
	defer out.flush()
	for s := range in {
		for _, line := range s.items {
			for from, to := nextWord(line, 0); from < to; from, to = nextWord(line, to) {
				word := line[from:to]
				h := tuple.HashBytes(word, 0)
				out.add(tuple.KeyGroup(h, len(out.to)), hashedWord{word, h})
			}
		}
		s.home <- s
	}
}

// limitCount counts the words that come in.
func limitCount(in <-chan *slab[hashedWord], counted *atomic.Int64) *wordTable {
	t := newWordTable()
	for s := range in {
		for _, w := range s.items {
			t.slot(w).count++
		}
		counted.Add(int64(len(s.items)))
		s.home <- s
	}
	return t
}

// wordTable is a hash table with linear probing, at most half full.
type wordTable struct {
	slots []wordSlot
	used  int
}

type wordSlot struct {
	hash  uint64
	word  string // empty: the slot is free; no word is
	count int64
}

func newWordTable() *wordTable { return &wordTable{slots: make([]wordSlot, 1<<10)} }

// slot returns the slot of a word, a new one if it has none.
func (t *wordTable) slot(w hashedWord) *wordSlot {
	mask := uint64(len(t.slots) - 1)
	for i := w.hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.hash == w.hash && s.word == w.text {
			return s
		}
		if s.word != "" {
			continue
		}
		if t.used*2 >= len(t.slots) {
			t.grow()
			return t.slot(w)
		}
		t.used++
		s.hash, s.word = w.hash, w.text
		return s
	}
}

func (t *wordTable) grow() {
	old := t.slots
	t.slots, t.used = make([]wordSlot, 2*len(old)), 0
	for _, o := range old {
		if o.word != "" {
			*t.slot(hashedWord{o.word, o.hash}) = o
		}
	}
}
