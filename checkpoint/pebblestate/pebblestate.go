// Package pebblestate keeps the keyed state of tasks in Pebble, one store per task
// and generation, and checkpoints it as SST files.
//
// What a batch has changed is written to one SST, a delta, which is both put to the
// checkpoint store and ingested into the local Pebble. So a checkpoint is an SST
// that exists anyway, and to restore is to ingest. Nothing local survives its
// process: it is rebuilt from the checkpoint, and is therefore never synced.
package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/isobar-io/isobar/checkpoint"
)

const (
	tableFormat        = sstable.TableFormatPebblev7  // checkpoint.TableFormat
	formatMajorVersion = pebble.FormatValueSeparation // the first with that table format

	cacheBytesDefault = 64 << 20
	openFilesMax      = 1000
	memTableBytes     = 4 << 20
	bloomBitsPerKey   = 10
	// Each delta is a layer of L0. Few make reads slow, many are merged at once.
	l0CompactionThreshold = 8
	// The store is written by ingestion alone, which must never stall.
	l0StopWritesThreshold = 1000
	manifestBytesMax      = 1 << 62 // see localFS
)

// Options says where and how an Opener works.
type Options struct {
	// Dir is a local folder for the stores, all of which belongs to the Opener.
	Dir string
	// Store keeps the files that checkpoints name.
	Store checkpoint.Store
	// CacheBytes is the size of the block cache that all stores share; 0 = 64 MB.
	CacheBytes int64
	// Logger gets what goes wrong in the background; nil = nothing is logged.
	Logger *slog.Logger
}

// Opener opens the keyed state of tasks. It implements checkpoint.StateOpener. Its
// methods may be called concurrently.
type Opener struct {
	dir    string
	store  checkpoint.Store
	logger *slog.Logger
	fs     vfs.FS // of the local stores
	blocks *pebble.Cache
	files  *pebble.FileCache
	clean  func() error

	mu   sync.Mutex
	live map[string]bool // folders of stores that are not closed
}

var _ checkpoint.StateOpener = (*Opener)(nil)

// New returns an Opener. Close it when all the stores it opened are closed.
func New(o Options) *Opener {
	if o.CacheBytes <= 0 {
		o.CacheBytes = cacheBytesDefault
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	opener := &Opener{
		dir: o.Dir, store: o.Store, logger: o.Logger, fs: vfs.Default,
		blocks: pebble.NewCache(o.CacheBytes),
		files:  pebble.NewFileCache(runtime.GOMAXPROCS(0), openFilesMax),
		live:   map[string]bool{},
	}
	opener.clean = sync.OnceValue(opener.removeGenerations)
	return opener
}

// Clean removes what earlier processes left in the folder. The first OpenState does
// it in any case; once done it does nothing more.
func (o *Opener) Clean() error { return o.clean() }

var generationFolder = regexp.MustCompile(`^[0-9a-f]{16}$`)

func (o *Opener) removeGenerations() error {
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean local state folder: %w", err)
	}
	for _, e := range entries {
		if !generationFolder.MatchString(e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(o.dir, e.Name())); err != nil {
			return fmt.Errorf("clean local state folder: %w", err)
		}
	}
	return nil
}

// Close releases the caches.
func (o *Opener) Close() error {
	o.files.Unref()
	o.blocks.Unref()
	return nil
}

// OpenState implements checkpoint.StateOpener: invariant I10.
func (o *Opener) OpenState(ctx context.Context, c checkpoint.StateConfig) (checkpoint.StateStore, error) {
	fail := func(err error) (checkpoint.StateStore, error) {
		return nil, fmt.Errorf("open state of %s/%d in generation %d: %w", c.Component, c.TaskIndex, c.Generation, err)
	}
	if err := o.Clean(); err != nil {
		return fail(err)
	}
	dir := filepath.Join(o.dir, fmt.Sprintf("%016x", uint64(c.Generation)), strconv.Itoa(int(c.TaskID)))
	if !o.claim(dir) {
		return fail(fmt.Errorf("%s is in use by a store that is not closed", dir))
	}
	s, err := o.newState(c, dir)
	if err != nil {
		o.release(dir)
		return fail(err)
	}
	if err := s.restore(ctx); err != nil {
		return fail(errors.Join(err, s.Close()))
	}
	return s, nil
}

// claim takes a folder for one store, until release.
func (o *Opener) claim(dir string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	free := !o.live[dir]
	o.live[dir] = true
	return free
}

func (o *Opener) release(dir string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, dir)
}

// newState makes an empty store in a folder that it empties first.
func (o *Opener) newState(c checkpoint.StateConfig, dir string) (*state, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, filesFolder), 0o777); err != nil {
		return nil, err
	}
	s := &state{
		opener: o, config: c, dir: dir, store: o.store,
		logger:  o.logger.With("component", c.Component, "task", c.TaskIndex),
		hook:    c.Hook,
		chain:   checkpoint.ClipChain(c.Files, c.GroupFrom, c.GroupTo),
		applied: c.Restored,
		views:   map[checkpoint.BatchID]*moment{},

		baseFileBytes: baseFileBytes,
		rowBytesMax:   rowBytesMax,
	}
	if s.hook == nil {
		s.hook = func(string) {}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	options := s.pebbleOptions()
	s.tables = newTables(options)
	var err error
	if s.db, err = pebble.Open(filepath.Join(dir, dbFolder), options); err != nil {
		s.cancel()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *state) pebbleOptions() *pebble.Options {
	options := &pebble.Options{
		FS:                    &localFS{s.opener.fs},
		Cache:                 s.opener.blocks,
		FileCache:             s.opener.files,
		Merger:                merger,
		DisableWAL:            true,
		ErrorIfExists:         true,
		FormatMajorVersion:    formatMajorVersion,
		MemTableSize:          memTableBytes,
		L0CompactionThreshold: l0CompactionThreshold,
		L0StopWritesThreshold: l0StopWritesThreshold,
		MaxManifestFileSize:   manifestBytesMax,
		Logger:                pebbleLogger{s.logger},
		EventListener: &pebble.EventListener{
			BackgroundError: s.backgroundFailed,
			DataCorruption:  func(i pebble.DataCorruptionInfo) { s.fail(i.Details) },
		},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = politeFilter{bloom.FilterPolicy(bloomBitsPerKey)}
		// The fastest codec of Pebble differs by processor; the same cut is to give
		// the same bytes everywhere.
		options.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	options.EnsureDefaults()
	return options
}
