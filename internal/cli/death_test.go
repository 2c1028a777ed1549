package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/engine/config"
)

var errDead = errors.New("the process is dead")

// life is how many calls of stores a process makes before it dies: before the next one
// has done anything, or after it has and before anybody has learned of it. Calls that
// others have begun by then may still end.
type life struct {
	after bool

	mu   sync.Mutex
	left int
	dead bool
}

func (l *life) live(call func() error) error {
	l.mu.Lock()
	dies := !l.dead && l.left == 0
	done := l.dead || dies && !l.after
	l.dead = l.dead || dies
	l.left--
	l.mu.Unlock()
	if done {
		return errDead
	}
	err := call()
	if dies {
		return errDead
	}
	return err
}

// mortal is a Place whose stores are those of a process that dies.
type mortal struct {
	storage.Place
	life *life
}

func (m mortal) Open(ctx context.Context, topology string, hook func(string)) (s checkpoint.Store, err error) {
	err = m.life.live(func() error { s, err = m.Place.Open(ctx, topology, hook); return err })
	return mortalStore{s, m.life}, err
}

func (m mortal) Look(ctx context.Context, topology string) (s checkpoint.Store, err error) {
	err = m.life.live(func() error { s, err = m.Place.Look(ctx, topology); return err })
	return mortalStore{s, m.life}, err
}

type mortalStore struct {
	checkpoint.Store
	life *life
}

func (s mortalStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	return s.life.live(func() error { return s.Store.Put(ctx, name, body, size, crc) })
}

func (s mortalStore) Open(ctx context.Context, name string) (body io.ReadCloser, size int64, err error) {
	err = s.life.live(func() error { body, size, err = s.Store.Open(ctx, name); return err })
	if errors.Is(err, errDead) && body != nil {
		return nil, 0, errors.Join(err, body.Close())
	}
	return body, size, err
}

func (s mortalStore) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.ObjectInfo, error] {
	if err := s.life.live(func() error { return nil }); err != nil {
		return func(yield func(checkpoint.ObjectInfo, error) bool) { yield(checkpoint.ObjectInfo{}, err) }
	}
	return s.Store.List(ctx, prefix)
}

func (s mortalStore) Delete(ctx context.Context, name string) error {
	return s.life.live(func() error { return s.Store.Delete(ctx, name) })
}

func (s mortalStore) ReadHead(ctx context.Context) (data []byte, v checkpoint.Version, err error) {
	err = s.life.live(func() error { data, v, err = s.Store.ReadHead(ctx); return err })
	return data, v, err
}

func (s mortalStore) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (v checkpoint.Version, err error) {
	err = s.life.live(func() error { v, err = s.Store.SwapHead(ctx, old, data); return err })
	return v, err
}

// placeOf is the place that a command would find.
func placeOf(t *testing.T, data string) storage.Place {
	t.Helper()
	p, err := storage.Named(data, config.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// folderAs returns a copy of a data folder; without one, the name of one that does not
// exist.
func folderAs(t *testing.T, data string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(to, "checkpoints"), 0o777); err != nil {
		t.Fatal(err)
	}
	if data != "" {
		if err := os.CopyFS(filepath.Join(to, "checkpoints"), os.DirFS(filepath.Join(data, "checkpoints"))); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// everyDeath calls try with lives of 0 calls and more, each with both ends, until one
// does not end.
func everyDeath(t *testing.T, try func(t *testing.T, l *life)) {
	for _, after := range []bool{false, true} {
		for calls := 0; ; calls++ {
			l := &life{left: calls, after: after}
			t.Run(fmt.Sprintf("%d calls, after %t", calls, after), func(t *testing.T) { try(t, l) })
			if !l.dead || t.Failed() {
				if calls < 8 {
					t.Errorf("there were only %d calls", calls)
				}
				break
			}
		}
	}
}

// whole fails unless all that the head in a data folder keeps is there and right. It
// returns false if there is no head.
func whole(t *testing.T, data string) bool {
	t.Helper()
	if _, err := filestore.HeadFile(filepath.Join(data, "checkpoints", "words")); errors.Is(err, checkpoint.ErrNotFound) {
		return false
	}
	contains(t, []string{"checkpoint", "verify", data, "--all"}, "All is right")
	return true
}

// A copy dies at every call of the store that it reads, and of the one that it writes to:
// an empty one, and one with an earlier copy.
func TestCopySurvivesDeathAtEveryStep(t *testing.T) {
	data, _, first, second := counted(t)
	older := folderAs(t, "")
	contains(t, []string{"checkpoint", "copy", data, older, "--checkpoint", first.String()})
	pristine := folderAs(t, "")
	contains(t, []string{"checkpoint", "copy", data, pristine})
	expected := objectsIn(t, pristine)
	maps.Copy(expected, objectsIn(t, older))
	before := objectsIn(t, data)
	for name, to := range map[string]string{"empty": "", "earlier copy": older} {
		t.Run(name, func(t *testing.T) {
			everyDeath(t, func(t *testing.T, l *life) {
				there := folderAs(t, to)
				err := copyUntilDeath(t, data, there, l)
				if l.dead != errors.Is(err, errDead) || !l.dead && err != nil {
					t.Fatalf("dead %t: %v", l.dead, err)
				}
				if whole(t, there) {
					if current := currentIn(t, there); current != second && (to == "" || current != first) {
						t.Errorf("the copy is of %s", current)
					}
				} else if to != "" || !l.dead {
					t.Error("there is no head")
				}
				contains(t, []string{"checkpoint", "copy", data, there}, "Copied checkpoint "+second.String())
				if !whole(t, there) || currentIn(t, there) != second {
					t.Errorf("copied again it is of %s", currentIn(t, there))
				}
				if got := objectsIn(t, there); to != "" && !maps.Equal(got, expected) || to == "" && len(got) != len(objectsIn(t, pristine)) {
					t.Errorf("there are %v\nwant %v", got, expected)
				}
			})
		})
	}
	if got := objectsIn(t, data); !whole(t, data) || !maps.Equal(got, before) {
		t.Errorf("the original has changed from %v to %v", before, got)
	}
}

// copyUntilDeath copies from one data folder to another.
func copyUntilDeath(t *testing.T, from, to string, l *life) error {
	t.Helper()
	a, err := openArchive(t.Context(), mortal{placeOf(t, from), l}, "words")
	if err != nil {
		return err
	}
	defer a.store.Close()
	_, err = a.copyTo(t.Context(), mortal{placeOf(t, to), l}, "", false)
	return err
}

// A prune dies at every call of the store. What is kept is whole, and what should be gone
// is found again.
func TestPruneSurvivesDeathAtEveryStep(t *testing.T) {
	data, o, first, second := counted(t)
	third := *counts(t, data, 170, 3, 0, o).Last
	contains(t, []string{"txn", "rollback", "--store", data, "--to", second.String(), "--yes"})
	last := *counts(t, data, 200, 2, 0, o).Last
	contains(t, []string{"checkpoint", "pin", data, first.String(), "--name", "begin"})
	kept := []checkpoint.Ref{first, last}
	everyDeath(t, func(t *testing.T, l *life) {
		data := folderAs(t, data)
		a, err := openArchive(t.Context(), mortal{placeOf(t, data), l}, "words")
		if err == nil {
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetOut(new(bytes.Buffer))
			err = errors.Join(a.change(cmd, false, checkpoint.PruneEdit(1)), a.store.Close())
		}
		if l.dead != errors.Is(err, errDead) || !l.dead && err != nil {
			t.Fatalf("dead %t: %v", l.dead, err)
		}
		whole(t, data)
		keeps := func(want ...checkpoint.Ref) bool {
			got := headIn(t, data).Kept("count")
			return len(got) == len(want) && !slices.ContainsFunc(want, func(ref checkpoint.Ref) bool { return !slices.Contains(got, ref) })
		}
		if !keeps(kept...) && (!l.dead || !keeps(first, second, third, last)) {
			t.Errorf("%v are kept", headIn(t, data).Kept("count"))
		}
		contains(t, []string{"checkpoint", "prune", data, "--keep", "1"})
		whole(t, data)
		if !keeps(kept...) {
			t.Errorf("pruned again, %v are kept", headIn(t, data).Kept("count"))
		}
		found(t, data, l.dead)
	})
}

// found fails unless the next start will find, as orphans, all objects that nothing kept
// names. There must be none if nothing has died.
func found(t *testing.T, data string, died bool) {
	t.Helper()
	named := namedIn(t, data)
	var left []checkpoint.ObjectInfo
	for name, size := range objectsIn(t, data) {
		if !named[name] {
			left = append(left, checkpoint.ObjectInfo{Name: name, Size: size})
		}
	}
	if orphans := checkpoint.Orphans(left, named, headIn(t, data).Generation+1, math.MaxInt64); len(orphans) != len(left) {
		t.Errorf("%v are left, of which %q will be found", left, orphans)
	}
	if !died && len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
