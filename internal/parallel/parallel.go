// Package parallel does many things at a time and yields what comes of them in order.
package parallel

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// Each calls do for every item, at most width at a time, and yields the items with what
// do has returned, in their order. Once the caller breaks off, or ctx ends, nothing more
// is begun, and the context of the calls under way ends. It returns when they have
// returned. It ends early only with ctx, whose error the caller must look at.
func Each[T, R any](ctx context.Context, width int, items []T, do func(ctx context.Context, item T) R) iter.Seq2[T, R] {
	return func(yield func(T, R) bool) {
		results := make([]chan R, len(items))
		for i := range results {
			results[i] = make(chan R, 1)
		}
		var running sync.WaitGroup
		defer running.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var begun atomic.Int64
		for range min(width, len(items)) {
			running.Go(func() {
				for ctx.Err() == nil {
					i := int(begun.Add(1)) - 1
					if i >= len(items) {
						return
					}
					results[i] <- do(ctx, items[i])
				}
			})
		}
		for i, item := range items {
			select {
			case r := <-results[i]:
				if !yield(item, r) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
