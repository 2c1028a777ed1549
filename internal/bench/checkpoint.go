package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// checkpoints measures what it costs to keep the checkpoints of a large state, of which
// some thousand keys are changed each second: in a directory, and on S3, compared with
// a store that lets all of it go. A window is
//
//   - a run with as many tuples as go through: they change the same keys of a batch
//     again and again, so that a checkpoint is as large as it is otherwise;
//   - a run with one tuple for each change, at a fixed rate, whatever becomes of those
//     before: a tuple's age counts from the moment at which it was due. All that is said
//     of checkpoints is of this run. One lasts from the barrier until the head has moved;
//   - of a store that keeps something: a run from its start to the first tuple that its
//     state has taken, with nothing local to begin with; the download of the same files,
//     and no more; and the look-up of one key in the checkpoint, without a run.
//
// Each run begins with the same checkpoint, whose bases are new: a base that becomes due
// is rare. What bases add is what they have when one is due, dealt to the checkpoints in
// between. A window of three seconds has three checkpoints: say -duration 20s to see
// their p99.
type checkpoints struct{}

func (checkpoints) name() string { return "checkpoint" }
func (checkpoints) heeds() []string {
	return []string{"modes", "state-mb", "changes", "entry-bytes", "interval"}
}

var checkpointColumns = []column{
	{"tuples_per_s", "M tuples/s", 1e6, 2},
	{"p99_ms", "p99 ms", 1, 2},
	{"added_p99_ms", "added ms", 1, 2},
	{"checkpoints", "checkpoints", 1, 0},
	{"checkpoint_p50_ms", "p50 ms", 1, 0},
	{"checkpoint_p99_ms", "p99 ms", 1, 0},
	{"checkpoint_bytes", "MB", 1e6, 2},
	{"checkpoint_of_changed", "of changed", 1, 2},
	{"bases_of_changed", "bases add", 1, 2},
	{"bases_bytes", "bases MB", 1e6, 0},
	{"objects", "objects", 1, 1},
	{"restore_ms", "restore ms", 1, 0},
	{"restore_of_download", "of download", 1, 2},
	{"get_ms", "get ms", 1, 1},
}

// checkpointTargets are what a store on S3 ought to reach.
var checkpointTargets = map[string]string{
	"added_p99_ms":          "≤ 5",
	"checkpoint_p50_ms":     "≤ 150",
	"checkpoint_p99_ms":     "≤ 500",
	"checkpoint_of_changed": "≤ 1.30",
	"restore_of_download":   "≤ 1.30",
	ratioKey(keptNowhere):   "≥ 0.90",
}

func (checkpoints) comparisons(o options) ([]comparison, error) {
	sizes, sizesErr := parseSizes(o.stateMB, "100,1024")
	names, namesErr := parseNames(o.modes, keptNowhere, keptInFiles, keptOnS3)
	var entryErr error
	if o.entryBytes <= keyBytes || o.entryBytes > 1<<20 {
		entryErr = fmt.Errorf("-entry-bytes must be more than the %d of a key, and %d at most", keyBytes, 1<<20)
	}
	var without []skipped
	program, why := versityProgram()
	if i := slices.Index(names, keptOnS3); i >= 0 && why != nil {
		names = slices.Delete(slices.Clone(names), i, i+1)
		without = []skipped{{keptOnS3, why.Error()}}
	}
	var all []comparison
	for _, mb := range sizes {
		b := &checkpointBench{o: o, megabytes: mb, program: program, names: names}
		c := comparison{
			label:   fmt.Sprintf("%d MB, %d/s", mb, o.changes),
			columns: checkpointColumns, bases: []string{keptNowhere}, targets: checkpointTargets,
			skipped: without, open: b.open, close: b.close,
		}
		for _, name := range names {
			c.variants = append(c.variants, variant{name, func(ctx context.Context) (sample, error) { return b.measure(ctx, b.places[name]) }})
		}
		all = append(all, c)
	}
	return all, errors.Join(sizesErr, namesErr, entryErr)
}

// checkpointBench has a checkpoint that all runs begin with.
type checkpointBench struct {
	o         options
	megabytes int
	program   string   // that serves S3
	names     []string // of the places to measure

	dir      string
	original *original
	server   *versity
	places   map[string]place
	baseP99  float64 // of tuples, where nothing is kept, in this round; NaN if not measured
}

// keys is how many the checkpoint holds.
func (b *checkpointBench) keys() uint64 { return uint64(b.megabytes) << 20 / uint64(b.o.entryBytes) }

func (b *checkpointBench) valueBytes() int { return b.o.entryBytes - keyBytes }

// open makes the checkpoint, and a copy of it in each place that keeps anything.
func (b *checkpointBench) open(ctx context.Context) (err error) {
	b.baseP99 = math.NaN()
	if b.dir, err = os.MkdirTemp("", "isobar-bench-"); err != nil {
		return err
	}
	b.places = map[string]place{keptNowhere: nowherePlace{}, keptInFiles: filesPlace{b.dir}}
	if slices.Contains(b.names, keptOnS3) {
		if b.server, err = startVersity(ctx, b.program, filepath.Join(b.dir, "s3")); err != nil {
			return err
		}
		if b.places[keptOnS3], err = b.server.place(); err != nil {
			return err
		}
	}
	if b.original, err = b.fill(ctx); err != nil {
		return fmt.Errorf("make the checkpoint: %w", err)
	}
	for _, name := range b.names {
		if name == keptNowhere {
			continue
		}
		store, err := b.places[name].open(ctx, restoreFolder)
		if err == nil {
			err = errors.Join(b.original.copyTo(ctx, store, func(string) bool { return true }), store.Close())
		}
		if err != nil {
			return fmt.Errorf("copy the checkpoint to %s: %w", name, err)
		}
	}
	return nil
}

func (b *checkpointBench) close() error {
	if b.server != nil {
		b.server.stop()
	}
	return os.RemoveAll(b.dir)
}

// restoreFolder holds the checkpoint that is restored; other folders are those of
// single runs.
const restoreFolder = "restore"

// load returns what the spout of a run does that may emit so many tuples a second.
func (b *checkpointBench) load(rate float64) *load {
	perBatch := uint64(float64(b.o.changes) * b.o.interval.Seconds())
	return &load{
		keys: b.keys(), perBatch: min(max(perBatch, 1), b.keys()), rate: rate, valueBytes: b.valueBytes(),
		ages: newAges(shape{spouts: 1, counts: holdTasks}, make([]paddedCounter, holdTasks)),
	}
}

// measure measures a place in one window.
func (b *checkpointBench) measure(ctx context.Context, p place) (sample, error) {
	_, nowhere := p.(nowherePlace)
	var x sample
	err := b.inPlace(ctx, p, func(r *changeRun) (err error) {
		r.load = b.load(0)
		x, err = pace(ctx, b.o, holdTasks, func(ctx context.Context, counted []paddedCounter) error {
			r.load.ages.words = counted
			return r.run(ctx)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	x = x[:1] // tuples a second
	err = b.inPlace(ctx, p, func(r *changeRun) error {
		r.load = b.load(float64(b.o.changes))
		aged, put, err := r.paced(ctx, b.o)
		if err != nil {
			return err
		}
		p99 := milliseconds(aged.quantile(0.99))
		if nowhere {
			b.baseP99 = p99
		}
		x = append(x, p99, p99-b.baseP99)
		x = append(x, put.sample(b.o.entryBytes)...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if nowhere {
		return append(x, math.NaN(), math.NaN(), math.NaN()), nil
	}
	restored, err := b.restore(ctx, p)
	return append(x, restored...), err
}

// inPlace lets fn use a run in a folder of its own, whose store begins with the original
// checkpoint.
func (b *checkpointBench) inPlace(ctx context.Context, p place, fn func(r *changeRun) error) (err error) {
	local, err := os.MkdirTemp(b.dir, "round-")
	if err != nil {
		return err
	}
	folder := filepath.Base(local)
	defer func() { err = errors.Join(err, os.RemoveAll(local), p.remove(folder)) }()
	store, err := p.open(ctx, folder)
	if err != nil {
		return err
	}
	begun, err := b.original.begin(ctx, store)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	l := newLedger(b.original.manifest)
	r := &changeRun{store: watched{begun, l}, local: local, interval: b.o.interval, ledger: l}
	return errors.Join(fn(r), store.Close())
}

// fill runs until all keys have a value, and from then on until a base holds them.
func (b *checkpointBench) fill(ctx context.Context) (*original, error) {
	files := filesPlace{b.dir}
	store, err := files.open(ctx, "original")
	if err != nil {
		return nil, err
	}
	l := newLedger(nil)
	r := &changeRun{store: watched{store, l}, local: filepath.Join(b.dir, "local"), interval: fillInterval, ledger: l, load: b.load(0)}
	r.load.perBatch = b.keys()
	r.load.until.Store(b.keys())
	if err := r.during(ctx, func(ctx context.Context) error {
		return l.await(ctx, func() bool { return l.committed >= b.keys() })
	}); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	r.interval = refreshInterval
	if err := r.during(ctx, func(ctx context.Context) error { return r.refresh(ctx, l.newest.Batch) }); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	o, err := newOriginal(ctx, store)
	return o, errors.Join(err, store.Close())
}

const (
	fillInterval    = 200 * time.Millisecond
	refreshInterval = 5 * time.Millisecond
	// refreshKeys is how many keys a batch changes until a base is due: some of each task.
	refreshKeys = 256
	// refreshPauseMax is the longest time between two batches while bases are written.
	refreshPauseMax = 2 * time.Second
)

// refresh changes a few keys in each of many batches, until bases that hold all of a
// batch have become due because of that, and are written. While that goes on there are
// few batches: they come after it in the chain.
func (r *changeRun) refresh(ctx context.Context, full checkpoint.BatchID) error {
	for pause := refreshInterval; !r.ledger.based(full); {
		until := r.load.until.Add(refreshKeys)
		if err := r.ledger.await(ctx, func() bool { return r.ledger.committed >= until }); err != nil {
			return err
		}
		if r.bases.Load() == 0 {
			continue
		}
		if err := pass(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, refreshPauseMax)
	}
	return nil
}
