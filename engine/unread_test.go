package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
)

// unread cannot read checkpoints at first.
type unread struct {
	checkpoint.StateOpener
	failures atomic.Int32
}

func (u *unread) OpenState(ctx context.Context, c checkpoint.StateConfig) (checkpoint.StateStore, error) {
	if c.Restored > 0 && u.failures.Add(-1) >= 0 {
		return nil, fmt.Errorf("503 slow down: %w", checkpoint.ErrUnread)
	}
	return u.StateOpener.OpenState(ctx, c)
}

// A store from which state cannot be read for a while costs time, and no restart: else as
// many tries as restarts are allowed would end the topology.
func TestStateThatCannotBeReadYet(t *testing.T) {
	in, _ := sample(1, 200)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		opener := &unread{StateOpener: memstore.NewOpener(store)}
		opener.failures.Store(20)
		var limit atomic.Int64
		limit.Store(-1)
		for _, n := range []int{100, 200} {
			b := &board{}
			res, err := engine.Run(t.Context(), counting(t, &limit, in[0][:n], b), engine.WithStore(store, opener),
				conf(t, map[string]any{"topology.restart.max": 1}))
			if err != nil || res.Restarts != 0 {
				t.Fatalf("%d restarts, and then: %v", res.Restarts, err)
			}
			if got := b.get(); !maps.Equal(got, wordsOf(in[0], n)) {
				t.Errorf("%d words are published", len(got))
			}
		}
		if opener.failures.Load() >= 0 {
			t.Error("nothing was restored")
		}
		// Nobody waits for it who is not wanted any more.
		opener.failures.Store(math.MaxInt32)
		control := engine.NewControl()
		time.AfterFunc(time.Minute, control.Abandon)
		_, err := engine.Run(t.Context(), counting(t, &limit, in[0], &board{}), engine.WithStore(store, opener), engine.WithControl(control), conf(t, nil))
		if !errors.Is(err, engine.ErrAbandoned) {
			t.Error(err)
		}
	})
}
