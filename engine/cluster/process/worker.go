package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/link/peer"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/worker/remote"
)

func (c *Config) identity(p *plan.Plan) remote.Identity {
	return remote.Identity{Topology: c.ID, Epoch: c.Epoch, Secret: c.Secret, Plan: remote.Fingerprint(p)}
}

// Worker runs tasks until the topology master says that the run is over.
func Worker(ctx context.Context, c Config) error {
	ran := false
	err := engine.Work(ctx, c.Build, func(ctx context.Context, w engine.Workplace) error {
		err := c.serve(ctx, w)
		ran = err == nil && ctx.Err() == nil
		return err
	}, c.Options...)
	if err == nil && !ran {
		return ErrInterrupted
	}
	return err
}

func (c *Config) serve(ctx context.Context, w engine.Workplace) error {
	l, err := listen(c.Listen, nil) // the node does TLS itself
	if err != nil {
		return err
	}
	address := reached(c.Host, l)
	node, err := peer.NewNode(peer.Config{
		Topology: fmt.Sprintf("%s/%d", c.ID, c.Epoch), Worker: c.Process.Worker, Incarnation: remote.IncarnationText(c.Incarnation),
		Listener: l, TLS: c.TLS, Lease: c.Lease,
		Streams: w.Plan.Streams(), Registry: w.Codecs, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	others := newBackground(ctx)
	masters := make(chan string, 1)
	if c.Master != nil {
		masters <- c.Master.Address
	}
	var secrets atomic.Pointer[cluster.Credentials]
	w.Env.Credentials = func() map[string]string {
		if now := secrets.Load(); now != nil {
			return *now
		}
		return nil
	}
	known := make(chan struct{})
	others.run(func(ctx context.Context) {
		c.followMaster(ctx, masters, &secrets, sync.OnceFunc(func() { close(known) }))
	})
	c.await(ctx, known)
	err = remote.Serve(ctx, remote.WorkerConfig{
		Identity: c.identity(w.Plan), Worker: c.Process.Worker, Incarnation: c.Incarnation,
		Plan: w.Plan, Env: w.Env, Links: remote.Over(node, c.Process.Worker), LinkAddress: address,
		Masters: masters, Dial: dialer(c.TLS),
		Lease: c.Lease, StopTimeout: w.StopTimeout, Logger: c.Logger,
	})
	others.end()
	return errors.Join(err, node.Close())
}

// followMaster sends the address of the topology master when it changes. It takes
// credentials and log levels as well. known is called when it has seen what there is.
func (c *Config) followMaster(ctx context.Context, masters chan string, secrets *atomic.Pointer[cluster.Credentials], known func()) {
	newest := uint64(0)
	follow(ctx, c.Store, c.ID, c.Logger, func(e cluster.Entry) {
		switch e.Key {
		case "":
			known()
		case cluster.KeyMaster:
			var m cluster.MasterRecord
			if json.Unmarshal(e.Value, &m) != nil || m.Epoch != c.Epoch || m.Incarnation < newest {
				return
			}
			newest = m.Incarnation
			select { // only the newest counts
			case <-masters:
			default:
			}
			masters <- m.Address
		case cluster.KeyIntent:
			c.heed(e)
		case cluster.KeyCredentials:
			var now cluster.Credentials
			if e.Value != nil && json.Unmarshal(e.Value, &now) == nil {
				secrets.Store(&now)
			}
		}
	})
}

// await waits until known is closed; without the coordination store that may be never.
func (c *Config) await(ctx context.Context, known <-chan struct{}) {
	patience := intentTime
	if !c.Store.Connected() {
		patience = 0
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-known:
	case <-late.C:
		c.Logger.Warn("the coordination store does not answer: credentials are not known yet")
	case <-ctx.Done():
	}
}

// heed sets the log levels that an intent has.
func (c *Config) heed(e cluster.Entry) (cluster.Intent, bool) {
	var in cluster.Intent
	if e.Value == nil || json.Unmarshal(e.Value, &in) != nil || in.Epoch != c.Epoch {
		return in, false
	}
	c.Levels.Set(in.LogLevels)
	return in, true
}
