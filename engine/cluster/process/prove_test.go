package process_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
)

// anyRead reports whether anything was read of the input before the newest checkpoint.
func (b *bench) anyRead() bool {
	b.t.Helper()
	data, _, err := b.store.ReadHead(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	head, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := checkpoint.ReadManifest(b.t.Context(), b.store, *head.Regions["count"].Current())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, task := range m.Tasks {
		for _, p := range task.Positions {
			if bytes.Trim(p.Data, "\x00") != nil {
				return true
			}
		}
	}
	return false
}

// A version that is not the first one is asked for a checkpoint long before the first barrier
// is due: behind its first input, and in the end also if there is none.
func TestNewVersionProvesItself(t *testing.T) {
	for _, c := range []struct {
		name  string
		input bool
	}{
		{"with its first input", true},
		{"without input", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1_000_000, 1000)
			b.epoch, b.every = 2, time.Hour
			b.put(cluster.KeyIntent, cluster.Intent{Epoch: 2})
			b.assign()
			var all sync.WaitGroup
			b.leads(&all)
			b.works(&all)
			b.await("that it runs", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseRunning })
			if c.input {
				b.put(cluster.KeyIntent, cluster.Intent{Epoch: 2, Active: true})
			}
			b.await("a checkpoint", func(s cluster.RunStatus) bool { return s.Committed == 1 })
			if b.anyRead() != c.input {
				t.Errorf("its first checkpoint has input: %t", !c.input)
			}
			b.put(cluster.KeyIntent, cluster.Intent{Epoch: 2, Stop: true})
			all.Wait()
		})
	}
}
