package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// Names in the data folder.
const (
	binariesDir   = "binaries"
	blobsDir      = "blobs"
	topologiesDir = "topologies"
	logsDir       = "logs"
	trashDir      = "trash"
)

// downloadsMax is how many objects are fetched at a time.
const downloadsMax = 5

// cache holds programs and blobs, each fetched once. What no place holds is removed when
// there is more than the budget, what was not used for the longest time first. All methods
// may be called from any goroutine.
type cache struct {
	dir    string
	budget int64
	store  cluster.Store
	log    *slog.Logger

	downloads chan struct{}

	mu       sync.Mutex
	holds    map[slots.Place]map[string]bool
	busy     map[string]chan struct{} // being fetched: closed at the end
	verified map[string]bool          // files whose checksum this process has seen
}

func newCache(dir string, budget int64, store cluster.Store, log *slog.Logger) *cache {
	return &cache{
		dir: dir, budget: budget, store: store, log: log,
		downloads: make(chan struct{}, downloadsMax),
		holds:     map[slots.Place]map[string]bool{}, busy: map[string]chan struct{}{}, verified: map[string]bool{},
	}
}

// hold keeps a path for a place until release, whether it is there yet or not.
func (c *cache) hold(p slots.Place, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds[p] == nil {
		c.holds[p] = map[string]bool{}
	}
	c.holds[p][path] = true
}

// release lets go of all that a place holds, but for what it keeps.
func (c *cache) release(p slots.Place, keep ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, p)
	for _, path := range keep {
		if c.holds[p] == nil {
			c.holds[p] = map[string]bool{}
		}
		c.holds[p][path] = true
	}
}

// drop lets go of one path that a place holds.
func (c *cache) drop(p slots.Place, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds[p], path)
}

// once has f make what is missing at path, which no other call does at the same time, and
// notes that it is used.
func (c *cache) once(ctx context.Context, path string, there func() bool, f func() error) error {
	for {
		c.mu.Lock()
		other := c.busy[path]
		mine := make(chan struct{})
		if other == nil {
			c.busy[path] = mine
		}
		c.mu.Unlock()
		if other == nil {
			err := c.make(ctx, path, there, f)
			c.mu.Lock()
			delete(c.busy, path)
			c.mu.Unlock()
			close(mine)
			return err
		}
		select {
		case <-other: // it may have failed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *cache) make(ctx context.Context, path string, there func() bool, f func() error) error {
	if !there() {
		select {
		case c.downloads <- struct{}{}:
			defer func() { <-c.downloads }()
		case <-ctx.Done():
			return ctx.Err()
		}
		err := f()
		if errors.Is(err, syscall.ENOSPC) {
			c.trim(0) // the next attempt has what nobody uses
		}
		if err != nil {
			return err
		}
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		return fmt.Errorf("note the use of %s: %w", path, err)
	}
	return nil
}

// content is what an object must be, whoever has written it.
type content struct {
	objects string // the set
	sha256  string // hex; also its name
	size    int64
}

// program fetches a topology's program for a place, and returns its path.
func (c *cache) program(ctx context.Context, p slots.Place, b cluster.Binary) (string, error) {
	if sum, err := hex.DecodeString(b.SHA256); err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("%q is no SHA-256 of a program", b.SHA256)
	}
	path := filepath.Join(c.dir, binariesDir, strings.ToLower(b.SHA256))
	want := content{cluster.ObjectsBinaries, b.SHA256, b.Size}
	c.hold(p, path)
	err := c.once(ctx, path, func() bool { return c.isSound(path, want) }, func() error {
		tmp, err := c.fetch(ctx, path, want, 0o500)
		if err == nil {
			err = c.keep(tmp, path)
		}
		if err != nil {
			return fmt.Errorf("fetch program %s: %w", b.SHA256, err)
		}
		return nil
	})
	return path, err
}

// isSound reports whether a file is there and has the right content. It is read once in the
// life of the supervisor.
func (c *cache) isSound(path string, want content) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	c.mu.Lock()
	known := c.verified[path]
	c.mu.Unlock()
	if known && info.Size() == want.size {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil || !strings.EqualFold(hex.EncodeToString(sum.Sum(nil)), want.sha256) {
		c.log.Warn("a file in the data folder is damaged, and fetched again", "path", path, "err", err)
		return false
	}
	c.mu.Lock()
	c.verified[path] = true
	c.mu.Unlock()
	return true
}

// fetch writes an object to a new file beside path, if it has the right content.
func (c *cache) fetch(ctx context.Context, path string, want content, mode fs.FileMode) (tmp string, err error) {
	objects, err := c.store.Objects(ctx, want.objects)
	if err != nil {
		return "", err
	}
	r, is, err := objects.Get(ctx, want.sha256)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if !strings.EqualFold(is.SHA256, want.sha256) || is.Size != want.size {
		return "", fmt.Errorf("its content in the object store has %d bytes and the SHA-256 %s, must have %d bytes and %s: it was refused; upload it again",
			is.Size, is.SHA256, want.size, want.sha256)
	}
	sum := sha256.New()
	if tmp, err = writeBeside(path, io.TeeReader(r, sum), mode); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, want.sha256) {
		err := fmt.Errorf("its SHA-256 is %s, not %s: it was refused", got, want.sha256)
		return "", errors.Join(err, os.Remove(tmp))
	}
	return tmp, nil
}

// keep makes a file that was fetched that of a path.
func (c *cache) keep(tmp, path string) error {
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	c.mu.Lock()
	c.verified[path] = true
	c.mu.Unlock()
	return syncDir(filepath.Dir(path))
}

// writeBeside writes what r yields to a new file beside path, durably.
func writeBeside(path string, r io.Reader, mode fs.FileMode) (tmp string, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), tmpPrefix)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// tmpPrefix begins the names of what is not complete.
const tmpPrefix = ".tmp-"

// syncDir makes the entries of a folder durable. Windows cannot, and need not.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// sweep removes what a former supervisor has not completed.
func (c *cache) sweep() error {
	var errs []error
	for _, dir := range append(c.folders(), c.dir) {
		for _, path := range list(dir) {
			if strings.HasPrefix(filepath.Base(path), tmpPrefix) {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	return errors.Join(errs...)
}

// folders returns those that have entries of the cache in them.
func (c *cache) folders() []string {
	return append(list(filepath.Join(c.dir, blobsDir)), filepath.Join(c.dir, binariesDir))
}

// list returns the paths of all that is in a folder; one that cannot be read has nothing.
func list(dir string) []string {
	entries, _ := os.ReadDir(dir) // see above
	paths := make([]string, len(entries))
	for i, e := range entries {
		paths[i] = filepath.Join(dir, e.Name())
	}
	return paths
}

type cached struct {
	path string
	size int64
	used time.Time
}

// trim removes what no place holds until there is no more than the budget.
func (c *cache) trim(budget int64) {
	all := c.entries()
	slices.SortFunc(all, func(a, b cached) int { return a.used.Compare(b.used) })
	var total int64
	for _, e := range all {
		total += e.size
	}
	for _, e := range all {
		if total <= budget {
			return
		}
		if !c.discard(e.path) {
			continue
		}
		total -= e.size
		c.log.Info("removed from the cache", "path", e.path, "bytes", e.size)
	}
}

// discard removes a path that nobody holds or fetches.
func (c *cache) discard(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[path] != nil {
		return false
	}
	for _, held := range c.holds {
		if held[path] {
			return false
		}
	}
	delete(c.verified, path)
	// Renamed first: what is half deleted must not be taken for the whole.
	gone := filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path))
	if err := os.Rename(path, gone); err != nil {
		c.log.Warn("cannot remove from the cache", "path", path, "err", err)
		return false
	}
	if err := os.RemoveAll(gone); err != nil {
		c.log.Warn("cannot remove from the cache", "path", gone, "err", err)
	}
	return true
}

// entries returns all that is in the cache.
func (c *cache) entries() []cached {
	var all []cached
	for _, dir := range c.folders() {
		for _, path := range list(dir) {
			info, err := os.Lstat(path)
			if err == nil && !strings.HasPrefix(filepath.Base(path), tmpPrefix) {
				all = append(all, cached{path: path, size: sizeOf(path), used: info.ModTime()})
			}
		}
	}
	return all
}

// sizeOf returns the size of a file, or of all that is in a folder.
func sizeOf(path string) int64 {
	var total int64
	// What vanishes meanwhile counts for nothing.
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}

// newest returns the path in a folder that was used last, or "".
func newest(dir string) string {
	var best cached
	for _, path := range list(dir) {
		info, err := os.Lstat(path)
		if err == nil && !strings.HasPrefix(filepath.Base(path), tmpPrefix) && !info.ModTime().Before(best.used) {
			best = cached{path: path, used: info.ModTime()}
		}
	}
	return best.path
}
