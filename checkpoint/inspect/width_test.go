package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/checkpoint/memstore"
)

// slow is a store that takes long to open a file, the less the later it is asked for.
type slow struct {
	checkpoint.Store
	asked, now, most atomic.Int64
	fail             func(name string) error
}

func (s *slow) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if !strings.HasPrefix(name, "data/") {
		return s.Store.Open(ctx, name)
	}
	for n := s.now.Add(1); n > s.most.Load(); {
		s.most.Store(n)
	}
	defer s.now.Add(-1)
	select {
	case <-time.After(time.Duration(100-s.asked.Add(1)) * time.Second):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if s.fail != nil {
		if err := s.fail(name); err != nil {
			return nil, 0, err
		}
	}
	return s.Store.Open(ctx, name)
}

// many returns a store with a checkpoint that names so many files, which do not exist.
func many(t *testing.T, files int) (*slow, checkpoint.Ref, []string) {
	t.Helper()
	_, m := sums(t)
	m.Tasks = m.Tasks[:1]
	one := m.Tasks[0].Files[0]
	m.Tasks[0].Files = nil
	var names []string
	for i := range files {
		one.Name = checkpoint.DataName(1, "count", 0, 1, fmt.Sprint(i))
		m.Tasks[0].Files = append(m.Tasks[0].Files, one)
		names = append(names, one.Name)
	}
	data, err := checkpoint.EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	s := &slow{Store: memstore.New()}
	ref := checkpoint.Ref{Generation: 1, Batch: 1, Manifest: "manifest/x", Size: int64(len(data)), CRC32C: checkpoint.CRC(data)}
	if err := s.Put(t.Context(), ref.Manifest, bytes.NewReader(data), ref.Size, ref.CRC32C); err != nil {
		t.Fatal(err)
	}
	return s, ref, names
}

func TestVerifyReadsEightFilesAtATimeAndReportsInOrder(t *testing.T) {
	s, ref, names := many(t, 24)
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var reported []string
		err := inspect.Verify(t.Context(), s, []checkpoint.Ref{ref}, func(f inspect.Finding) {
			reported = append(reported, f.Object)
			if f.Object != ref.Manifest && !errors.Is(f.Err, checkpoint.ErrNotFound) {
				t.Errorf("%s: %v", f.Object, f.Err)
			}
		})
		if want := append([]string{ref.Manifest}, names...); err != nil || !slices.Equal(reported, want) {
			t.Errorf("reported were %q\nwant %q\n%v", reported, want, err)
		}
		if took := time.Since(begun); s.most.Load() != 8 || took > 300*time.Second {
			t.Errorf("it took %v, with %d files at a time", took, s.most.Load())
		}
	})
}

func TestVerifyEndsWithOtherErrorsAndWithItsContext(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	down := errors.New("the store is down")
	s, ref, names := many(t, 24)
	synctest.Test(t, func(t *testing.T) {
		s.fail = func(name string) error {
			if name == names[3] {
				return down
			}
			return nil
		}
		findings := 0
		err := inspect.Verify(t.Context(), s, []checkpoint.Ref{ref}, func(inspect.Finding) { findings++ })
		if !errors.Is(err, down) || !strings.Contains(err.Error(), names[3]) || findings != 4 || s.asked.Load() == 24 {
			t.Errorf("%v after %d findings and %d questions", err, findings, s.asked.Load())
		}
		s.fail = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := inspect.Verify(ctx, s, []checkpoint.Ref{ref}, func(inspect.Finding) {}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}
