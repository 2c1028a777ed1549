package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// A run that is stopped while its storage is opened comes up all the same if that does not
// take long any more, and else ends with an error.
func TestStoppingWhileTheStorageIsOpened(t *testing.T) {
	for _, late := range []time.Duration{0, 400 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			in := numbered("l", 10)
			o := newOutside()
			topo := publishing(t, func() txn.Spout { return newLines(in) }, never, func() *sink { return &sink{o: o, log: &calls{}} }, 1)
			var stopped time.Time
			e := <-start(ctx, topo, conf(t, nil), engine.WithStorage(func(ctx context.Context, _ engine.Opening) (engine.Storage, error) {
				time.Sleep(time.Minute)
				stop()
				stopped = time.Now()
				select {
				case <-time.After(late):
				case <-ctx.Done():
					return engine.Storage{}, ctx.Err()
				}
				s := memstore.New()
				return engine.Storage{Store: s, State: memstore.NewOpener(s)}, nil
			}))
			took := time.Since(stopped)
			switch {
			case late < time.Second && (e.err != nil || e.res.Outcome != engine.Stopped):
				t.Errorf("the storage was opened %v after the stop: %+v, %v", late, e.res, e.err)
			case late > time.Second && (e.err == nil || !strings.Contains(e.err.Error(), "stopped while the checkpoint store was opened") || took > 500*time.Millisecond):
				t.Errorf("%v after the stop: %v", took, e.err)
			}
		})
	}
}
