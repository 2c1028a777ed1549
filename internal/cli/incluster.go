package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/config"
)

// savepoint takes one of a topology in a cluster, and returns its checkpoints.
func (r *reach) savepoint(cmd *cobra.Command, topology, name string) (refs []checkpoint.Ref, err error) {
	err = r.with(cmd, func(ctx context.Context, c *client.Client) error {
		taken, err := request[cluster.SavepointTaken](ctx, c, cluster.VerbSavepoint, cluster.Savepoint{Topology: topology, Name: name})
		refs = taken.Checkpoints
		return err
	})
	return refs, err
}

// inCluster has a topology master change the head, from which its topology goes on.
type inCluster struct {
	*client.Client
	topology string
}

func (c inCluster) rollback(ctx context.Context, to entry, drop bool, _ *checkpoint.Head) (*checkpoint.Head, error) {
	ask := cluster.Rollback{Topology: c.topology, To: to.ref.String(), DropUnpublished: drop}
	if err := c.Call(ctx, cluster.VerbRollback, ask, nil); err != nil {
		return nil, err
	}
	after, err := c.head(ctx)
	if err != nil {
		return nil, fmt.Errorf("topology %s has gone back to %s, but how its head is now cannot be told: %w", c.topology, to.ref, err)
	}
	return after, nil
}

// head returns the head as the run knows it.
func (c inCluster) head(ctx context.Context) (*checkpoint.Head, error) {
	return request[*checkpoint.Head](ctx, c.Client, cluster.VerbHead, cluster.Named{Name: c.topology})
}

// goBack gives do the head of a topology in a cluster, with the store if it can be read
// from here.
func (r *reach) goBack(cmd *cobra.Command, l *location, topology string, do func(a *archive, where headPlace) error) error {
	own, err := config.Read(l.file, l.assignments)
	if err != nil {
		return err
	}
	return r.with(cmd, func(ctx context.Context, cl *client.Client) error {
		c := inCluster{cl, topology}
		d, err := detail(ctx, cl, topology)
		if err != nil {
			return err
		}
		head, err := c.head(ctx)
		if err != nil {
			return fmt.Errorf("%w; 'isobar txn rollback --store' goes back while nothing runs", err)
		}
		a, err := lookAt(ctx, d.Topology, own, head)
		if err != nil {
			return do(&archive{topology: topology, head: head, unseen: err}, c)
		}
		return errors.Join(do(a, c), a.store.Close())
	})
}

// lookTime is how long it may take to find a store that may not be reached from here.
const lookTime = 15 * time.Second

// lookAt opens the store of a topology, as its configuration and what is laid over it say. Its
// head must be of the same run as the one that the topology master has told.
func lookAt(ctx context.Context, t cluster.Topology, own config.Values, head *checkpoint.Head) (*archive, error) {
	whole, err := config.OfJSON("", t.Version.Config)
	if err != nil {
		return nil, err
	}
	conf := config.Merge(whole, own)
	name := conf.String("checkpoint.store")
	if name == "" {
		return nil, fmt.Errorf("checkpoint.store of topology %s is not set", t.Name)
	}
	place, err := storage.Find(conf, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	names, err := place.Topologies(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read from here: %w", name, err)
	}
	if !slices.Contains(names, t.Name) {
		return nil, fmt.Errorf("%s, as it is seen from here, has no checkpoints of topology %s", name, t.Name)
	}
	a, err := openArchive(ctx, place, t.Name)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read from here: %w", name, err)
	}
	if a.head.RunID != head.RunID {
		return nil, errors.Join(fmt.Errorf("%s, as it is seen from here, holds another run of topology %s", name, t.Name), a.store.Close())
	}
	return a, nil
}
