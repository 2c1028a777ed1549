package pebblestate

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
)

// away is a store that cannot open objects.
type away struct{ *memstore.Store }

func (away) Open(context.Context, string) (io.ReadCloser, int64, error) {
	return nil, 0, errors.New("503 slow down")
}

type fullFile struct{}

func (fullFile) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// What could not be read is told from what is not there or damaged, and from the end of the
// one who asks.
func TestWhyStateIsNotRestored(t *testing.T) {
	store := memstore.New()
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	files := apply(t, s, cutOf(1, 0, 100, "x"))
	over, stop := context.WithCancel(t.Context())
	stop()
	damaged := files[0]
	damaged.CRC32C++
	for _, c := range []struct {
		name   string
		ctx    context.Context
		store  checkpoint.Store
		file   checkpoint.FileRef
		unread bool
	}{
		{"there", t.Context(), store, files[0], false},
		{"store away", t.Context(), away{store}, files[0], true},
		{"not there", t.Context(), memstore.New(), files[0], false},
		{"damaged", t.Context(), store, damaged, false},
		{"over", over, away{store}, files[0], false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := newOpener(t, t.TempDir(), c.store).OpenState(c.ctx, config(2, 1, c.file))
			if errors.Is(err, checkpoint.ErrUnread) != c.unread || (err == nil) != (c.name == "there") {
				t.Errorf("%v, want it unread: %t", err, c.unread)
			}
			if c.unread && !strings.Contains(err.Error(), "503 slow down") {
				t.Errorf("why is not told: %v", err)
			}
			if err == nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	full := &localWriter{file: fullFile{}}
	if _, err := full.Write([]byte("x")); err == nil || full.err == nil {
		t.Error("a full disk is not told from a store that is away")
	}
	// It can be tried again in the same place.
	o := newOpener(t, t.TempDir(), store)
	o.store = away{store}
	if _, err := o.OpenState(t.Context(), config(2, 1, files...)); !errors.Is(err, checkpoint.ErrUnread) {
		t.Fatal(err)
	}
	o.store = store
	if n := rows(t, openState(t, o, config(2, 1, files...)), 1); n != rows(t, s, 1) {
		t.Errorf("%d rows are restored", n)
	}
}
