package main

import (
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// entryBytes is the size of a key and its value, which does not compress.
const entryBytes = 1 << 10

// entrySpout emits keys that it emits once, with values.
type entrySpout struct {
	source
	until  uint64
	random *rand.ChaCha8
	value  [entryBytes - keyBytes]byte
	keys   keyMaker
}

func (s *entrySpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("key", "value") }

func (s *entrySpout) NextTuple(out *txn.Collector) (txn.Status, error) {
	if s.emitted >= s.until {
		return txn.Idle, nil
	}
	if s.random == nil {
		s.random = rand.NewChaCha8([32]byte{})
	}
	if _, err := s.random.Read(s.value[:]); err != nil {
		return txn.Idle, err
	}
	out.Emit2(tuple.String(s.keys.make(int(s.emitted)).text), tuple.Bytes(s.value[:]))
	s.emitted++
	return txn.Emitted, nil
}

// holdBolt keeps the values and says so.
type holdBolt struct{ values *txn.Value[[]byte] }

func (b *holdBolt) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("key") }

func (b *holdBolt) Open(_ *txn.Context, s *txn.State) error {
	b.values = txn.NewValue(s, "value", txn.BytesCodec())
	return nil
}

func (b *holdBolt) Execute(t *tuple.Tuple, out *txn.Collector) error {
	out.Emit1(t.Value(0))
	return b.values.Set(t.Bytes(1))
}

// arrivals tells when enough tuples have arrived.
type arrivals struct {
	want   uint64
	got    uint64
	enough chan struct{}
}

func newArrivals(want uint64) *arrivals { return &arrivals{want: want, enough: make(chan struct{})} }

func (a *arrivals) Execute(*tuple.Tuple, *txn.Collector) error {
	if a.got++; a.got == a.want {
		close(a.enough)
	}
	return nil
}

// steps are the moments at which a restore gets on.
type steps struct {
	mu      sync.Mutex
	opened  time.Time // the first file of state
	fetched time.Time // the last one
	ready   time.Time // the last task
}

// hook is called at the named steps of a run.
func (s *steps) hook(step string) {
	if step == "restore.after" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ready = time.Now()
	}
}

// timedStore tells when files of state are opened and closed, or linked.
type timedStore struct {
	checkpoint.Store
	steps *steps
}

// Link links an object.
func (s timedStore) Link(ctx context.Context, name, path string) error {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	if s.steps.opened.IsZero() {
		s.steps.opened = time.Now()
	}
	err := s.Store.(checkpoint.Linker).Link(ctx, name, path)
	s.steps.fetched = time.Now() // they are verified later, which counts as ingestion
	return err
}

// Open opens an object.
func (s timedStore) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if !strings.HasPrefix(name, "data/") {
		return s.Store.Open(ctx, name)
	}
	s.steps.mu.Lock()
	if s.steps.opened.IsZero() {
		s.steps.opened = time.Now()
	}
	s.steps.mu.Unlock()
	body, size, err := s.Store.Open(ctx, name)
	return timedBody{body, s.steps}, size, err
}

type timedBody struct {
	io.ReadCloser
	steps *steps
}

func (b timedBody) Close() error {
	b.steps.mu.Lock()
	defer b.steps.mu.Unlock()
	b.steps.fetched = time.Now()
	return b.ReadCloser.Close()
}
