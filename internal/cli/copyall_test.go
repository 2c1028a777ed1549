package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
)

// slowStore takes a second for each Put.
type slowStore struct {
	checkpoint.Store
	puts, now, most atomic.Int64
	fail            string // the name of what cannot be put
}

var errFull = errors.New("no space is left")

func (s *slowStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	s.puts.Add(1)
	for n := s.now.Add(1); n > s.most.Load(); {
		s.most.Store(n)
	}
	defer s.now.Add(-1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return fmt.Errorf("put object %s: %w", name, ctx.Err())
	}
	if name == s.fail {
		return fmt.Errorf("put object %s: %w", name, errFull)
	}
	return s.Store.Put(ctx, name, body, size, crc)
}

// objects returns a copy that is about to begin, and what it is to copy.
func objects(t *testing.T, n int) (*copying, *slowStore, []checkpoint.FileRef) {
	t.Helper()
	to := &slowStore{Store: memstore.New()}
	c := &copying{from: memstore.New(), to: to, there: map[string]int64{}}
	var all []checkpoint.FileRef
	for i := range n {
		data := []byte(strings.Repeat("x", i+1))
		o := checkpoint.FileRef{Name: fmt.Sprintf("data/%02d", i), Size: int64(len(data)), CRC32C: checkpoint.CRC(data)}
		if err := c.from.Put(t.Context(), o.Name, bytes.NewReader(data), o.Size, o.CRC32C); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return c, to, all
}

func TestCopyTakesEightObjectsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, to, all := objects(t, 24)
		begun := time.Now()
		if err := c.copyAll(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 3*time.Second || to.most.Load() != 8 {
			t.Errorf("it took %v, with %d objects at a time", took, to.most.Load())
		}
		if c.done.Objects != 24 || c.done.Bytes != 24*25/2 || len(c.there) != 24 {
			t.Errorf("copied were %+v", c.done)
		}
	})
}

func TestCopyNamesAllThatIsDamagedAndCopiesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, all := objects(t, 24)
		all[3].CRC32C ^= 1
		all[9].Name = "data/missing"
		all[20].Size++
		err := c.copyAll(t.Context(), all)
		if !errors.Is(err, checkpoint.ErrDamaged) || !errors.Is(err, checkpoint.ErrNotFound) || c.done.Objects != 21 {
			t.Fatalf("%d objects are copied: %v", c.done.Objects, err)
		}
		at := 0
		for _, name := range []string{"data/03", "data/missing", "data/20"} {
			i := strings.Index(err.Error()[at:], name)
			if i < 0 {
				t.Fatalf("the error does not name %s in its turn: %v", name, err)
			}
			at += i
		}
	})
}

func TestCopyEndsWhereItCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, to, all := objects(t, 100)
		to.fail = "data/10"
		err := c.copyAll(t.Context(), all)
		if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "data/10") || c.done.Objects != 10 || to.puts.Load() > 30 {
			t.Errorf("%d objects are copied of %d begun: %v", c.done.Objects, to.puts.Load(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if err := c.copyAll(ctx, all[50:]); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestCopyNamesAllThatIsOfAnotherSizeThere(t *testing.T) {
	c, to, all := objects(t, 4)
	c.there = map[string]int64{"data/01": 7, "data/02": 3, "data/03": 9}
	missing, err := c.missing(append(all, all[0]))
	if !errors.Is(err, checkpoint.ErrExists) || !strings.Contains(err.Error(), "data/01 has 7 bytes") || !strings.Contains(err.Error(), "data/03 has 9 bytes") {
		t.Error(err)
	}
	if len(missing) != 1 || missing[0] != all[0] || c.done.There != 1 || to.puts.Load() != 0 {
		t.Errorf("missing are %v, %d are there", missing, c.done.There)
	}
}
