package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/isobar-io/isobar/txn"
)

// Errors of a Store, to be told apart with errors.Is.
var (
	// ErrNotFound: there is no object, or no head, of that name.
	ErrNotFound = errors.New("not found")
	// ErrHeadMoved: the head is not the expected version. Nothing was written.
	ErrHeadMoved = errors.New("the head was moved by another writer")
	// ErrExists: another object with other bytes already has that name.
	ErrExists = errors.New("already exists with other content")
	// ErrDamaged: bytes do not match their recorded size or checksum. The message
	// names the object.
	ErrDamaged = errors.New("damaged")
	// ErrNewer: the document has a later version of its format than this build reads.
	ErrNewer = errors.New("a newer isobar wrote it and is needed to read it")
)

// ErrUnread is wrapped by the error of a StateOpener that could not read what the state is
// restored from, though it may be there and sound: another try may do better.
var ErrUnread = errors.New("the checkpoint could not be read")

// Hopeless reports whether an error of reading a checkpoint is about its content, so that no
// other try will do better.
func Hopeless(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNewer)
}

// Version identifies one version of the head. The zero Version stands for "there is
// no head".
type Version string

// ObjectInfo is what List tells of an object.
type ObjectInfo struct {
	Name      string
	Size      int64
	UnixMilli int64 // when it was written
}

// Store keeps the objects of one topology. Names are slash-separated, relative, and
// made of letters, digits, '.', '-' and '_'. All methods may be called concurrently.
type Store interface {
	// Put stores size bytes of body under a name that is not in use. When it returns
	// nil the object is durable and complete: its size and crc (CRC-32C) were
	// verified on the way. Putting the same bytes again succeeds; other bytes under
	// the same name are ErrExists. A failed Put may have stored the object, or not,
	// but never part of it.
	Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error

	// Open returns an object's bytes and size. The caller verifies checksums and
	// closes. ErrNotFound if there is none.
	Open(ctx context.Context, name string) (body io.ReadCloser, size int64, err error)

	// List yields the objects whose name begins with prefix, in name order, without
	// the head. It may miss objects that are being written.
	List(ctx context.Context, prefix string) iter.Seq2[ObjectInfo, error]

	// Delete removes an object; a missing one is not an error.
	Delete(ctx context.Context, name string) error

	// ReadHead returns the head's bytes and version. ErrNotFound if there is none.
	ReadHead(ctx context.Context) (data []byte, v Version, err error)

	// SwapHead replaces the head if its version still is old, durably and in one
	// step. ErrHeadMoved means that nothing was written; any other error means that
	// the outcome is unknown and the head must be read again.
	SwapHead(ctx context.Context, old Version, data []byte) (Version, error)

	// Close releases the store. It does not delete anything.
	Close() error
}

// Linker is a Store whose objects are files of this machine.
type Linker interface {
	// Link makes path, where nothing must be yet, another name of the file that holds
	// an object: a hard link. To remove it leaves the object as it is; nobody must write
	// to it. It verifies nothing. ErrNotFound if there is no such object; an error that
	// wraps errors.ErrUnsupported if path cannot be such a link, as on another file
	// system: then the object can still be copied.
	Link(ctx context.Context, name, path string) error
}

// RangeReader is a Store that reads a part of an object without the rest.
type RangeReader interface {
	// ReadAt fills p with the bytes of an object from off. It verifies nothing.
	// ErrNotFound if there is no such object; an error, and p is no good, if it ends
	// before p is full.
	ReadAt(ctx context.Context, name string, p []byte, off int64) error
}

// StateStore is the keyed state of one task below its in-memory tables. The methods of
// txn.Backend are called by the task, all others by its committer, one at a time.
type StateStore interface {
	txn.Backend

	// Apply makes a cut part of the state, stores it as an object, and returns the
	// files that hold the state as of the cut's batch. Cuts come in batch order. A
	// failed Apply is repeated with the same cut and continues where it failed; the
	// last one that succeeded may be repeated and does nothing.
	Apply(ctx context.Context, cut *txn.Cut) ([]FileRef, error)

	// View returns the state as of batch n, which must be the restored batch or one
	// that was applied and not released. It is valid until Release(n) or Close.
	View(n BatchID) (txn.View, error)

	// Release says that no batch at or below n will be viewed, except n itself.
	Release(n BatchID)

	// Close waits for background work. It deletes nothing that a manifest names.
	Close() error
}

// StateStats is what the state of one task takes below its in-memory tables.
type StateStats struct {
	MemoryBytes int64 // without what it has in a cache that several share
	DiskBytes   int64 // of the local store; of files that are linked, too
	Tables      int64 // files of the local store
	ReadDepth   int   // how many of them a read may have to look into
	DebtBytes   int64 // an estimate of what is still to be merged until reads are fast
}

// StateMeter is a StateStore that can tell what it takes. Stats may be called at any
// time, from any goroutine; of a closed state it is zero.
type StateMeter interface{ Stats() StateStats }

// CacheMeter is a StateOpener whose states share a cache. It may be called, from any
// goroutine, until the opener is closed.
type CacheMeter interface {
	// CacheBytes returns how much the cache holds, and how much it may.
	CacheBytes() (held, limit int64)
}

// StateConfig says which part of which state to open.
type StateConfig struct {
	Component  string
	TaskIndex  int
	TaskID     TaskID
	Generation Generation
	Restored   BatchID // the batch that Files hold; 0 for a fresh start
	GroupFrom  int     // the task owns key groups [GroupFrom, GroupTo)
	GroupTo    int
	Files      []FileRef // of all old tasks whose groups overlap, each chain in order
	// States returns the states known so far; View finds state ids by name in it.
	States func() []txn.StateMeta
	// Now, if set, returns the processing time in milliseconds since 1970, from any
	// goroutine: new bases leave out what has expired.
	Now func() int64
	// Hook, if set, is called at named steps (see the engine's list of steps) so
	// that tests can crash there.
	Hook func(step string)
}

// StateOpener opens the keyed state of a task from a checkpoint. It verifies every
// file before it is used.
type StateOpener interface {
	OpenState(ctx context.Context, c StateConfig) (StateStore, error)
}

// StateID returns the id of a state by its name, or an error that says which states
// there are.
func (c *StateConfig) StateID(name string) (uint16, error) {
	var known []string
	if c.States != nil {
		for _, s := range c.States() {
			if s.Name == name {
				return s.ID, nil
			}
			known = append(known, s.Name)
		}
	}
	return 0, fmt.Errorf("component %q has no state %q; it has %q", c.Component, name, known)
}

// Unneeded returns a function that tells whether a new base may leave a row out: its
// state was dropped, or it has expired now. Without a clock nothing has.
func (c *StateConfig) Unneeded() func(key, value []byte) bool {
	if c.States == nil {
		return func(_, _ []byte) bool { return false }
	}
	kinds, dropped := map[uint16]string{}, map[uint16]bool{}
	for _, s := range c.States() {
		kinds[s.ID] = s.Kind
		dropped[s.ID] = s.Dropped()
	}
	now := int64(math.MinInt64)
	if c.Now != nil {
		now = c.Now()
	}
	return func(key, value []byte) bool {
		_, id, _, _ := txn.SplitStateKey(key)
		at, ok := txn.Expiry(kinds[id], value)
		return dropped[id] || ok && at <= now
	}
}

// CheckMerges refuses a cut with a record that is to be merged and cannot be, whatever
// it meets: once it is in a checkpoint, its key could not be read any more.
func CheckMerges(cut *txn.Cut) error {
	var value []byte
	for _, r := range cut.Records {
		if !r.Merge {
			continue
		}
		if r.Delete {
			return fmt.Errorf("the change of key %x is to be both a deletion and merged", r.Key)
		}
		value = append(value[:0], r.Value...)
		if _, err := txn.MergeValues(value, r.Value); err != nil {
			return fmt.Errorf("the change of key %x: %w", r.Key, err)
		}
	}
	return nil
}
