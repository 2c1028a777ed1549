package nimbus

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// retry is after how long a look that has failed is repeated.
const retry = time.Second

// stepsMax bounds how often a topology is decided about in one look.
const stepsMax = 8

// look brings everything to where it is to be, as far as it can now, and returns after how
// long to look again at the latest.
func (l *leader) look(ctx context.Context) time.Duration {
	if !l.current(ctx) {
		return retry
	}
	var errs []error
	outcomes := map[string]outcome{}
	for name, t := range l.topologies.all() {
		out, err := l.settle(ctx, t)
		if err != nil {
			errs = append(errs, fmt.Errorf("topology %s: %w", name, err))
			continue
		}
		outcomes[name] = out
	}
	errs = append(errs, l.place(ctx, outcomes))
	if now := time.Now(); now.Sub(l.cleaned) >= l.limits.monitor {
		l.cleaned = now
		errs = append(errs, l.clean(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() == nil {
			l.Log.Warn("not everything could be done, it is tried again", "error", err)
		}
		l.stale = true
		return retry
	}
	return l.next(l.clock.now())
}

// current makes sure that what is known is what the store has. It returns false if the store
// does not answer.
func (l *leader) current(ctx context.Context) bool {
	if !l.Store.Connected() || !l.lease.answered() {
		l.away = true
		return false
	}
	if l.away || l.stale {
		if err := l.reload(ctx); err != nil {
			l.Log.Warn("reading everything again", "error", err)
			return false
		}
	}
	return true
}

// next returns how long there is nothing to do unless something changes.
func (l *leader) next(now time.Time) time.Duration {
	wait := l.limits.monitor
	for _, t := range l.topologies.all() {
		if left := t.Deadline.Sub(now); !t.Deadline.IsZero() && left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// reload reads again what this leader alone writes: a write has failed, or the store was
// away. After the latter everybody has a fresh lease.
func (l *leader) reload(ctx context.Context) error {
	errs := []error{l.topologies.load(ctx), l.assignments.load(ctx), l.secrets.load(ctx), l.blobs.load(ctx), l.reloadSupervisors(ctx)}
	for id, b := range l.own {
		last := b.kept[cluster.KeyStatus].revision
		switch err := b.load(ctx); {
		case errors.Is(err, cluster.ErrNotFound): // it is made anew when it is needed
			b.stop()
			delete(l.own, id)
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("topology %s: %w", id, err))
		}
		if b.kept[cluster.KeyStatus].revision != last {
			l.hear(id, b, time.Now())
		}
		if l.away {
			b.forgive()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if l.away {
		l.heard.reset(time.Now())
	}
	l.away, l.stale = false, false
	return nil
}

// reloadSupervisors reads the heartbeats again. The watch has no news of those any more.
func (l *leader) reloadSupervisors(ctx context.Context) error {
	known := l.supervisors.kept
	err := l.supervisors.load(ctx)
	for id, now := range l.supervisors.kept {
		if now.revision != known[id].revision {
			l.heard.sign(id, time.Now())
		}
	}
	return err
}

// settle decides about a topology, and does what is decided, until nothing changes any more.
func (l *leader) settle(ctx context.Context, t cluster.Topology) (outcome, error) {
	for range stepsMax {
		v, err := l.view(ctx, t)
		if err != nil {
			return outcome{}, err
		}
		out := decide(v)
		if !reflect.DeepEqual(out.topology, t) {
			if err := l.topologies.set(ctx, t.Name, out.topology); err != nil {
				return outcome{}, err
			}
			l.Log.Info("a topology has changed", "topology", t.Name, "id", t.ID, "from", t.Status, "to", out.topology.Status,
				"step", out.topology.Step, "epoch", out.topology.Version.Epoch, "error", out.topology.Error)
			t = out.topology
			continue
		}
		if again, err := l.apply(ctx, out, v.assignment); err != nil || !again {
			return out, err
		}
	}
	return outcome{}, fmt.Errorf("it does not come to rest: it is %s, step %q", t.Status, t.Step)
}

func (l *leader) view(ctx context.Context, t cluster.Topology) (view, error) {
	b, err := l.bucketOf(ctx, t.ID)
	if err != nil {
		return view{}, err
	}
	now := time.Now()
	v := view{
		now:       l.clock.now(),
		stopLimit: l.limits.stop,
		topology:  t,
		settled:   now.Sub(l.heard.since) >= l.limits.supervisor+l.limits.task,
	}
	if err, damaged := l.assignments.damaged[t.ID]; damaged {
		return view{}, err // what runs is not known
	}
	if a, ok := l.assignments.get(t.ID); ok {
		v.assignment = &a
	}
	if b.run != nil && b.run.Epoch == t.Version.Epoch {
		v.run = b.run
	}
	for _, text := range l.ends(t) {
		v.ends = append(v.ends, text)
	}
	return v, nil
}

// apply writes what is to be of one topology, but for where it runs. It returns whether that
// calls for another decision.
func (l *leader) apply(ctx context.Context, out outcome, a *cluster.Assignment) (again bool, err error) {
	if out.forget {
		return false, l.forget(ctx, out.topology)
	}
	if err := l.intend(ctx, out); err != nil {
		return false, err
	}
	if out.place != placeEnd || a == nil {
		return false, nil
	}
	return l.end(ctx, *a)
}

// end ends the processes of an assignment, and then removes it.
func (l *leader) end(ctx context.Context, a cluster.Assignment) (gone bool, err error) {
	if !a.Stop {
		a.Stop = true
		a.Number++
		if err := l.assign(ctx, a); err != nil {
			return false, err
		}
	}
	if l.runsSomewhere(a.ID) {
		return false, nil
	}
	return true, l.assignments.remove(ctx, a.ID)
}

// runsSomewhere reports whether a supervisor that is alive has a process of a topology, or is
// about to start one since it has not heard yet that all are to end.
func (l *leader) runsSomewhere(id string) bool {
	return slices.ContainsFunc(l.present(time.Now()), func(s cluster.Supervisor) bool {
		return slices.ContainsFunc(s.Processes, func(p cluster.ProcessStatus) bool { return p.ID == id && p.MayRun() })
	})
}

// intend writes what the topology master is to do. Log levels that are over are left out.
func (l *leader) intend(ctx context.Context, out outcome) error {
	b, err := l.bucketOf(ctx, out.topology.ID)
	if err != nil {
		return err
	}
	intent := cluster.Intent{Epoch: out.topology.Version.Epoch, Active: out.active, Stop: out.stop, LogLevels: b.levels(time.Now())}
	return b.put(ctx, cluster.KeyIntent, intent)
}

// levels returns the log levels that are set now.
func (b *bucket) levels(now time.Time) map[string]cluster.Level {
	var old cluster.Intent
	if text, ok := b.get(cluster.KeyIntent); ok && json.Unmarshal(text, &old) != nil {
		return nil
	}
	for logger, level := range old.LogLevels {
		if !level.Until.IsZero() && !now.Before(level.Until) {
			delete(old.LogLevels, logger)
		}
	}
	return old.LogLevels
}

// put sets a key of a topology's bucket, if it has not that value yet.
func (b *bucket) put(ctx context.Context, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if old, ok := b.get(key); ok && bytes.Equal(old, text) {
		return nil
	}
	if _, damaged := b.damaged[key]; damaged {
		return b.mend(ctx, key, text)
	}
	return b.set(ctx, key, text)
}

// assign writes an assignment for the supervisors, after what its processes need.
func (l *leader) assign(ctx context.Context, a cluster.Assignment) error {
	b, err := l.bucketOf(ctx, a.ID)
	if err != nil {
		return err
	}
	if err := l.secret(ctx, a); err != nil {
		return err
	}
	if err := b.put(ctx, cluster.KeyAssignment, a); err != nil {
		return err
	}
	return l.assignments.set(ctx, a.ID, a)
}

// secret makes the secrets of an epoch.
func (l *leader) secret(ctx context.Context, a cluster.Assignment) error {
	old, ok := l.secrets.get(a.ID)
	if a.Stop || ok && old.Epoch == a.Version.Epoch {
		return nil
	}
	s := cluster.Secrets{Epoch: a.Version.Epoch, Secret: randomText(), Creds: old.Creds}
	if l.Minter != nil && s.Creds == "" {
		var err error
		if s.Creds, err = l.Minter.Mint(ctx, a.ID); err != nil {
			return fmt.Errorf("making credentials: %w", err)
		}
	}
	return l.secrets.set(ctx, a.ID, s)
}

func randomText() string { return rand.Text() }

// unassigned proves that a topology has no assignment, by making one and removing it: what was
// listed may be of a server that is behind.
func (l *leader) unassigned(ctx context.Context, t cluster.Topology) error {
	none := cluster.Assignment{Topology: t.Name, ID: t.ID, Version: cluster.Version{Epoch: t.Version.Epoch + 1}, Stop: true}
	if err := l.assignments.create(ctx, t.ID, none); err != nil {
		return fmt.Errorf("making sure that nothing is assigned: %w", err)
	}
	return l.assignments.remove(ctx, t.ID)
}

// forget removes all that there is of a killed topology. The record is last, as its name is
// free then.
func (l *leader) forget(ctx context.Context, t cluster.Topology) error {
	if err := l.unassigned(ctx, t); err != nil {
		return err
	}
	if err := l.deleteBucket(ctx, t.ID); err != nil {
		return err
	}
	if l.Minter != nil {
		if err := l.Minter.Revoke(ctx, t.ID); err != nil {
			return fmt.Errorf("revoking credentials: %w", err)
		}
	}
	if err := l.secrets.remove(ctx, t.ID); err != nil {
		return err
	}
	delete(l.placed, t.ID)
	delete(l.waiting, t.Name)
	l.Log.Info("a killed topology has gone", "topology", t.Name, "id", t.ID)
	return l.topologies.remove(ctx, t.Name)
}

func (l *leader) deleteBucket(ctx context.Context, id string) error {
	if b, ok := l.own[id]; ok {
		b.stop()
		delete(l.own, id)
	}
	ctx, done, err := l.lease.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := l.Store.DeleteBucket(ctx, cluster.TopologyBucket(id)); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return err
	}
	return nil
}
