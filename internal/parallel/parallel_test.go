package parallel_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/internal/parallel"
)

func upTo(n int) (items []int) {
	for i := range n {
		items = append(items, i)
	}
	return items
}

// The later an item, the sooner it is done.
func TestResultsComeInOrderAndSoManyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, width := range []int{1, 3, 8, 100} {
			var now, most atomic.Int64
			begun := time.Now()
			var got []int
			for item, square := range parallel.Each(t.Context(), width, upTo(24), func(_ context.Context, i int) int {
				for n := now.Add(1); n > most.Load(); {
					most.Store(n)
				}
				time.Sleep(time.Duration(100-i) * time.Second)
				now.Add(-1)
				return i * i
			}) {
				if square != item*item {
					t.Errorf("width %d: %d is %d", width, item, square)
				}
				got = append(got, item)
			}
			if want := int64(min(width, 24)); !slices.Equal(got, upTo(24)) || most.Load() != want {
				t.Errorf("width %d: items %v, at most %d at a time", width, got, most.Load())
			}
			if took := time.Since(begun); width == 8 && took > 300*time.Second {
				t.Errorf("width %d took %v", width, took)
			}
		}
	})
}

func TestBreakingOffEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, by := range []string{"break", "context"} {
			ctx, cancel := context.WithCancel(t.Context())
			yielded := 0
			var calls, returns atomic.Int64
			for item, err := range parallel.Each(ctx, 4, upTo(100), func(ctx context.Context, i int) error {
				calls.Add(1)
				defer returns.Add(1)
				if i == 0 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}) {
				if yielded++; item != 0 || err != nil {
					t.Errorf("%s: %d, %v", by, item, err)
				}
				synctest.Wait()
				if by == "break" {
					break
				}
				cancel()
			}
			if calls.Load() != 5 || returns.Load() != 5 || yielded != 1 {
				t.Errorf("%s: %d calls, %d have returned, %d results", by, calls.Load(), returns.Load(), yielded)
			}
			cancel()
		}
	})
}

func TestNothingToDo(t *testing.T) {
	for range parallel.Each(t.Context(), 8, nil, func(context.Context, int) int { t.Error("called"); return 0 }) {
		t.Error("yielded")
	}
}
