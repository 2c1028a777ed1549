package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/txn"
)

// restore measures how long a run takes from its start to the first new output when
// its state is in a checkpoint, by as many tasks as wrote it and by twice as many.
// The limit is to read and to check the same files. The files are in the page cache.
type restore struct{}

func (restore) name() string    { return "restore" }
func (restore) heeds() []string { return []string{"state-mb"} }

const holdTasks = 2

var restoreColumns = []column{
	{"mb_per_s", "MB/s", 1, 0},
	{"ms", "ms", 1, 0},
	{"open_ms", "open ms", 1, 0},
	{"fetch_ms", "fetch ms", 1, 0},
	{"ingest_ms", "ingest ms", 1, 0},
	{"output_ms", "output ms", 1, 0},
	{"committed_ms", "committed ms", 1, 0},
}

func (restore) comparisons(o options) ([]comparison, error) {
	sizes, err := parseSizes(o.stateMB, "1024")
	var all []comparison
	for _, mb := range sizes {
		b := &restoreBench{megabytes: mb}
		at := func(tasks int) func(context.Context) (sample, error) {
			return func(ctx context.Context) (sample, error) { return b.restore(ctx, tasks) }
		}
		all = append(all, comparison{
			label: fmt.Sprintf("%d MB", mb), columns: restoreColumns, bases: []string{limitMode},
			open: b.open, close: b.close,
			variants: []variant{
				{limitMode, b.read},
				{fmt.Sprintf("%d tasks", holdTasks), at(holdTasks)},
				{fmt.Sprintf("%d tasks", 2*holdTasks), at(2 * holdTasks)},
			},
		})
	}
	return all, err
}

// parseSizes reads a list of sizes in MB. usual is what an empty text stands for.
func parseSizes(text, usual string) ([]int, error) {
	if text == "" {
		text = usual
	}
	return list(text, func(text string) (int, error) {
		mb, err := strconv.Atoi(text)
		if err != nil || mb < 1 || mb > 1<<20 {
			return 0, fmt.Errorf("-state-mb %q: it is a whole number of MB from 1 to %d", text, 1<<20)
		}
		return mb, nil
	})
}

// restoreBench has a checkpoint that all rounds begin with.
type restoreBench struct {
	megabytes int
	dir       string
	files     []checkpoint.FileRef // of the checkpoint
	bytes     int64                // of them
}

// entries is how many the checkpoint holds.
func (b *restoreBench) entries() uint64 { return uint64(b.megabytes) << 20 / entryBytes }

func (b *restoreBench) original() string { return filepath.Join(b.dir, "original") }

func (b *restoreBench) close() error { return os.RemoveAll(b.dir) }

// open makes the checkpoint.
func (b *restoreBench) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "isobar-bench-"); err != nil {
		return err
	}
	r := restoreRun{dir: b.original(), local: filepath.Join(b.dir, "local"), tasks: holdTasks,
		until: b.entries(), out: newArrivals(b.entries())}
	if err := r.run(ctx, func(context.Context) error { return nil }); err != nil {
		return fmt.Errorf("make the checkpoint: %w", err)
	}
	if b.files, err = currentFiles(ctx, b.original()); err != nil {
		return err
	}
	for _, f := range b.files {
		b.bytes += f.Size
	}
	return nil
}

// currentFiles returns the files of state of the newest checkpoint in a folder.
func currentFiles(ctx context.Context, dir string) ([]checkpoint.FileRef, error) {
	store, err := filestore.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := currentManifest(ctx, store)
	if err != nil {
		return nil, err
	}
	return filesOf(m), store.Close()
}

// currentManifest returns the newest checkpoint of a topology that is one region.
func currentManifest(ctx context.Context, store checkpoint.Store) (*checkpoint.Manifest, error) {
	data, _, err := store.ReadHead(ctx)
	if err != nil {
		return nil, err
	}
	head, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		return nil, err
	}
	for _, region := range head.Regions {
		if current := region.Current(); current != nil && len(head.Regions) == 1 {
			return checkpoint.ReadManifest(ctx, store, *current)
		}
	}
	return nil, fmt.Errorf("the head names %d regions, of which one should have a checkpoint", len(head.Regions))
}

// filesOf returns the files of state that a manifest names, each once.
func filesOf(m *checkpoint.Manifest) (files []checkpoint.FileRef) {
	seen := map[string]bool{}
	for _, t := range m.Tasks {
		for _, f := range t.Files {
			if !seen[f.Name] {
				seen[f.Name] = true
				files = append(files, f)
			}
		}
	}
	return files
}

// read reads and checks the files, with all processors.
func (b *restoreBench) read(ctx context.Context) (sample, error) {
	runtime.GC()
	store, err := filestore.Open(b.original())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var readers sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, len(b.files))
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(b.files)); i = next.Add(1) - 1 {
				f := b.files[i]
				errs[i] = checkpoint.CopyObject(ctx, store, nowhere{}, f.Name, f.Size, f.CRC32C)
			}
		})
	}
	readers.Wait()
	took := time.Since(began)
	nan := math.NaN()
	return sample{float64(b.bytes) / 1e6 / took.Seconds(), milliseconds(took), nan, nan, nan, nan, nan}, errors.Join(errs...)
}

// nowhere takes what is written and does not look at it. Unlike io.Discard it lets
// the sender use a buffer of its own.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// restore restores a copy of the checkpoint by a number of tasks.
func (b *restoreBench) restore(ctx context.Context, tasks int) (x sample, err error) {
	dir, err := os.MkdirTemp(b.dir, "round-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := restoreRun{dir: filepath.Join(dir, "checkpoints"), local: filepath.Join(dir, "local"), tasks: tasks,
		until: b.entries() + 1, out: newArrivals(1)}
	if err := linkTree(b.original(), r.dir); err != nil {
		return nil, err
	}
	runtime.GC()
	began := time.Now()
	var output, committed time.Duration
	err = r.run(ctx, func(ctx context.Context) error {
		output = time.Since(began)
		err := r.awaitCommit(ctx)
		committed = time.Since(began)
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &r.steps
	return sample{
		float64(b.bytes) / 1e6 / output.Seconds(), milliseconds(output),
		milliseconds(s.opened.Sub(began)), milliseconds(s.fetched.Sub(s.opened)), milliseconds(s.ready.Sub(s.fetched)),
		milliseconds(output - s.ready.Sub(began)), milliseconds(committed),
	}, nil
}

// linkTree makes a copy of a directory store: its objects are never changed, so
// links to them will do. The head is small and is copied.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(target, 0o777)
		case filepath.Dir(rel) != ".":
			return os.Link(path, target)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o666)
	})
}

// restoreRun is a run that keeps large values by key, in a store of its own.
type restoreRun struct {
	dir, local string // its checkpoints, and the state while it runs
	tasks      int    // that keep values
	until      uint64 // the spout idles when that many entries are emitted
	out        *arrivals
	steps      steps

	inspector atomic.Pointer[engine.Inspector]
}

// run runs it until the awaited output has arrived and then has returned.
func (r *restoreRun) run(ctx context.Context, then func(context.Context) error) error {
	b := engine.NewTopologyBuilder()
	b.SetSpout("entries", func() txn.Spout { return &entrySpout{until: r.until} }, 1)
	b.SetBolt("hold", func() txn.Bolt { return &holdBolt{} }, r.tasks).FieldsGrouping("entries", "key")
	b.SetBolt("out", func() txn.Bolt { return r.out }, 1).ShuffleGrouping("hold")
	topology, err := b.Build()
	if err != nil {
		return err
	}
	conf, err := config.Of(map[string]any{"transaction.schedule.batch.delay.ms": 100, "topology.state.cache.mb": 64})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.runEngine(ctx, topology, conf) }()
	select {
	case err := <-ended:
		return errors.Join(errors.New("the run ended before the awaited output"), err)
	case <-r.out.enough:
	}
	err = then(ctx)
	stop()
	return errors.Join(err, <-ended)
}

func (r *restoreRun) runEngine(ctx context.Context, t *engine.Topology, conf config.Values) error {
	files, err := filestore.Open(r.dir)
	if err != nil {
		return err
	}
	store := timedStore{files, &r.steps}
	state := pebblestate.New(pebblestate.Options{Dir: r.local, Store: store})
	_, err = engine.Run(ctx, t, engine.WithConfig(conf), engine.WithStore(store, state), engine.WithHook(r.steps.hook),
		engine.WithInspector(func(i *engine.Inspector) { r.inspector.Store(i) }))
	return errors.Join(err, state.Close(), store.Close())
}

// awaitCommit waits until the run has committed a batch.
func (r *restoreRun) awaitCommit(ctx context.Context) error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for committed(r.inspector.Load()) == 0 {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
