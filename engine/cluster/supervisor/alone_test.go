//go:build unix

package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// Of two supervisors of one id, the second is refused while the first one lives.
func TestSupervisorIsAlone(t *testing.T) {
	for _, c := range []struct {
		name          string
		host, machine string // of the second; the first is on a, with machine m
		dead, away    bool
		waits         time.Duration
		refused       bool
	}{
		{name: "started again", host: "a", machine: "m"},
		{name: "a copy of the folder", host: "b", machine: "m", waits: 5 * time.Second, refused: true},
		{name: "a copy of the machine under its name", host: "a", machine: "n", waits: 5 * time.Second, refused: true},
		{name: "the machine has another name now", host: "b", machine: "m", dead: true, waits: 15 * time.Second},
		{name: "nobody can be asked", host: "b", machine: "m", away: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memcluster.New()
				store := server.Connect("supervisor")
				if _, err := store.Bucket(t.Context(), cluster.BucketSupervisors, true); err != nil {
					t.Fatal(err)
				}
				cfg := Config{ID: "s1", Host: "a", Machine: "m", Store: store, HeartbeatEvery: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)}
				beating, stop := context.WithCancel(t.Context())
				defer stop()
				go newHeart(cfg).beat(beating)
				pause(t.Context(), 63*time.Second, nil) // between two heartbeats
				if c.dead {
					stop()
				}
				if c.away {
					server.Stop()
				}
				cfg.Host, cfg.Machine = c.host, c.machine
				began := time.Now()
				err := newHeart(cfg).alone(t.Context())
				if refused := err != nil && strings.Contains(err.Error(), `supervisor "s1": one of this id runs on host a`); refused != c.refused {
					t.Errorf("error is %v", err)
				}
				if waited := time.Since(began); waited != c.waits {
					t.Errorf("after %v, want %v", waited, c.waits)
				}
			})
		})
	}
}
