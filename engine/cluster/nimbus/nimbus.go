package nimbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/cluster/schedule"
	"github.com/isobar-io/isobar/engine/config"
)

// Minter makes the credentials with which the processes of a topology use the coordination
// store: their own bucket and their own service, and nothing else.
type Minter interface {
	// Mint returns the content of a credentials file. It may be asked again for the same
	// topology.
	Mint(ctx context.Context, topologyID string) (string, error)
	// Revoke makes what Mint has returned worthless.
	Revoke(ctx context.Context, topologyID string) error
}

// Options are what a nimbus is made of.
type Options struct {
	// ID is different for every nimbus that runs; operators see it as the leader.
	ID    string
	Store cluster.Store
	Conf  config.Values // of daemonconf
	// Version is that of Isobar; submissions must fit it.
	Version string
	Minter  Minter // nil: processes need no credentials
	Log     *slog.Logger
}

// limits are the times of the configuration.
type limits struct {
	lease, monitor         time.Duration
	supervisor             time.Duration
	task, launch           time.Duration
	stop, update, unneeded time.Duration
}

// Nimbus is one of the daemons of a cluster that may lead it.
type Nimbus struct {
	Options
	limits      limits
	permissions cluster.Permissions
	schedule    schedule.Scheduler
}

// New returns a nimbus; Run runs it.
func New(o Options) (*Nimbus, error) {
	c := o.Conf
	machines, err := daemonconf.Machines(c.String("isolation.scheduler.machines"))
	if err != nil {
		return nil, err
	}
	scheduler, err := schedule.New(c.String("storm.scheduler"), schedule.Options{Machines: machines})
	if err != nil {
		return nil, fmt.Errorf("storm.scheduler: %w", err)
	}
	return &Nimbus{
		Options:  o,
		schedule: scheduler,
		limits: limits{
			lease:      c.Duration("nimbus.lease.secs"),
			monitor:    c.Duration("nimbus.monitor.freq.secs"),
			supervisor: c.Duration("nimbus.supervisor.timeout.secs"),
			task:       c.Duration("nimbus.task.timeout.secs"),
			launch:     c.Duration("nimbus.task.launch.secs"),
			stop:       c.Duration("nimbus.stop.timeout.secs"),
			update:     c.Duration("nimbus.update.timeout.secs"),
			unneeded:   c.Duration("nimbus.inbox.jar.expiration.secs"),
		},
		permissions: cluster.Permissions{
			Admins:      c.List("nimbus.admins"),
			Users:       c.List("nimbus.users"),
			Supervisors: c.List("nimbus.supervisor.users"),
		},
	}, nil
}

// Run stands by and leads, by turns, until ctx ends.
func (n *Nimbus) Run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		l, err := acquire(ctx, n.Store, n.ID, n.limits.lease)
		if err != nil {
			return
		}
		n.Log.Info("leading", "nimbus", n.ID)
		err = n.lead(ctx, l)
		if err := l.release(context.WithoutCancel(ctx)); err != nil {
			n.Log.Warn("the lease was not given up, it will run out", "error", err)
		}
		if ctx.Err() != nil {
			return
		}
		n.Log.Warn("leading no longer", "nimbus", n.ID, "error", err)
		again.Reset(retry) // what cannot be read now is not read sooner by asking without a pause
	}
}

// lead leads until ctx ends or the lease is lost. When it returns, nothing of it is running.
func (n *Nimbus) lead(ctx context.Context, l *lease) error {
	ctx, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end(nil)
	running.Go(func() { end(l.keep(ctx)) })
	lead := &leader{
		Nimbus:  n,
		lease:   l,
		clock:   newClock(),
		running: &running,
		asks:    make(chan ask),
		events:  make(chan event),
	}
	if err := lead.open(ctx); err != nil {
		if !errors.Is(err, errDeposed) && ctx.Err() == nil {
			n.Log.Warn("cannot read what there is", "error", err)
		}
		end(err)
		return err
	}
	stop, err := n.Store.Serve(cluster.ServiceNimbus, func(asked context.Context, user string, body []byte) ([]byte, error) {
		return lead.answer(ctx, asked, user, body)
	})
	if err != nil {
		return err
	}
	defer stop()
	lead.loop(ctx)
	return context.Cause(ctx)
}
