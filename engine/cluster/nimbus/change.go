package nimbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/config"
)

// facts gathers what a submission is judged by.
func (l *leader) facts(ctx context.Context, user string, s cluster.Submission) (facts, error) {
	is := facts{
		user:        user,
		permissions: l.permissions,
		supervisors: l.present(time.Now()),
		version:     l.Version,
		slotsMax:    l.Conf.Int("nimbus.slots.perTopology"),
		tasksMax:    l.Conf.Int("nimbus.executors.perTopology"),
		protected:   l.Conf.List("nimbus.protected.keys"),
		blobs:       l.blobOf,
		defaults:    daemonconf.ForTopologies(l.Conf),
	}
	if t, ok := l.topologies.get(s.Name); ok {
		is.now = &t
	}
	if err, ok := l.topologies.damaged[s.Name]; ok {
		return is, fmt.Errorf("topology %s: %w", s.Name, err)
	}
	binaries, err := l.Store.Objects(ctx, cluster.ObjectsBinaries)
	if err != nil {
		return is, err
	}
	o, err := binaries.Info(ctx, s.Binary.SHA256)
	switch {
	case err == nil:
		is.binary = &o
		l.needed(cluster.ObjectsBinaries, o.Name) // its submission is on its way
	case errors.Is(err, cluster.ErrUnavailable) || ctx.Err() != nil:
		return is, err
	default: // it is not there, or damaged; an upload makes it good
	}
	return is, nil
}

func (l *leader) blobOf(key string) (cluster.BlobRecord, bool) {
	return l.blobs.get(cluster.KeyOfBlob(key))
}

// check says what speaks against a submission before its program is uploaded.
func (l *leader) check(ctx context.Context, user string, s cluster.Submission) (cluster.Checked, error) {
	if err := l.permissions.Allow(user, cluster.ClassUser, "", cluster.Audience{}); err != nil {
		return cluster.Checked{}, err
	}
	is, err := l.facts(ctx, user, s)
	if err != nil {
		return cluster.Checked{}, err
	}
	_, f := check(s, is)
	var upload findings // what another upload makes good
	checkUploaded(&upload, s, is)
	return cluster.Checked{Problems: f.problems, Warnings: f.warnings, HasBinary: len(upload.problems) == 0}, nil
}

func (l *leader) submit(ctx context.Context, user string, s cluster.Submission) (cluster.Submitted, error) {
	if err := l.permissions.Allow(user, cluster.ClassUser, "", cluster.Audience{}); err != nil {
		return cluster.Submitted{}, err
	}
	is, err := l.facts(ctx, user, s)
	if err != nil {
		return cluster.Submitted{}, err
	}
	version, f := check(s, is)
	checkUploaded(&f, s, is)
	if err := refused(fmt.Sprintf("topology %q is refused", s.Name), f.problems); err != nil {
		return cluster.Submitted{}, err
	}
	done := cluster.Submitted{Warnings: f.warnings}
	if s.Update {
		done.ID = is.now.ID
		return done, l.exchange(ctx, *is.now, cluster.CommandUpdate, version, 0, s.UpdateTimeoutSecs)
	}
	if done.ID, err = l.newID(ctx, s.Name); err != nil {
		return cluster.Submitted{}, err
	}
	version.Epoch = 1
	t := cluster.Topology{Name: s.Name, ID: done.ID, Owner: user, Status: cluster.Active, Launched: wall(), Version: version}
	if s.Inactive {
		t.Status = cluster.Inactive
	}
	err = l.topologies.create(ctx, s.Name, t)
	if errors.Is(err, cluster.ErrExists) {
		l.stale = true
		return cluster.Submitted{}, fmt.Errorf("topology %s is there already", s.Name)
	}
	if err == nil {
		l.Log.Info("a topology was submitted", "topology", t.Name, "id", t.ID, "owner", user)
	}
	return done, l.wrote(err)
}

// wall returns the time of the wall clock, as it is kept.
func wall() time.Time { return time.Now().UTC().Round(0) }

// newID returns an id that no topology ever had: each write of a key has a revision of its
// own.
func (l *leader) newID(ctx context.Context, name string) (string, error) {
	ctx, done, err := l.lease.fence(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	counter, err := l.lease.bucket.Put(ctx, cluster.KeyIDs, []byte(l.ID))
	if err != nil {
		return "", fmt.Errorf("numbering topology %s: %w", name, err)
	}
	return cluster.TopologyID(name, counter, time.Now()), nil
}

// exchange begins to replace what runs by another version of it.
func (l *leader) exchange(ctx context.Context, t cluster.Topology, command cluster.Command, next cluster.Version, wait time.Duration, secs int) error {
	status, err := cluster.Transition(t.Name, t.Status, command)
	if err != nil {
		return err
	}
	if _, began := l.assignments.get(t.ID); !began {
		return l.substitute(ctx, t, command, next)
	}
	next.Start.From = cluster.FromHead
	t.Previous, t.Status, t.Step, t.Next = t.Status, status, cluster.StepDrain, &next
	t.Deadline = l.clock.now().Add(wait)
	t.UpdateSecs = cmp.Or(max(secs, 0), int(l.limits.update/time.Second))
	t.Error = ""
	return l.wrote(l.topologies.set(ctx, t.Name, t))
}

// substitute replaces the version of a topology that has not begun, because it waits for
// slots: nothing is to be stopped, and it is still to begin where its submission says. What
// was to go back to something could do so twice, if it has begun where nobody sees it.
func (l *leader) substitute(ctx context.Context, t cluster.Topology, command cluster.Command, next cluster.Version) error {
	start := t.Version.Start
	if start.From != "" && start.From != "latest" && start.From != cluster.FromHead {
		return fmt.Errorf("topology %s has not begun yet, which it is to do from %s: kill it, and submit it as it is to be", t.Name, start.From)
	}
	if command == cluster.CommandRebalance {
		next.Start = start
	}
	if next.Start.From == "" || start.From == cluster.FromHead {
		next.Start.From = start.From
	}
	if err := l.unassigned(ctx, t); err != nil {
		return l.wrote(err)
	}
	next.Epoch = t.Version.Epoch + 1
	t.Version, t.Error = next, ""
	return l.wrote(l.topologies.set(ctx, t.Name, t))
}

func (l *leader) kill(ctx context.Context, user string, k cluster.Kill) error {
	t, err := l.find(user, k.Name, cluster.ClassTopology)
	if err != nil {
		return err
	}
	was := t.Status
	if t.Status, err = cluster.Transition(t.Name, was, cluster.CommandKill); err != nil {
		return err
	}
	if k.NoCheckpoint { // what would be waited for is not kept
		k.WaitSecs = max(k.WaitSecs, 0)
	}
	wait, err := l.waitOf(t, k.WaitSecs)
	if err != nil {
		return err
	}
	now := l.clock.now()
	if over := was == cluster.Killed && !now.Before(t.Deadline); !over { // the end has begun
		settle(&t)
		t.Deadline = now.Add(wait)
	}
	t.NoCheckpoint = t.NoCheckpoint || k.NoCheckpoint
	return l.wrote(l.topologies.set(ctx, t.Name, t))
}

// waitOf returns how long spouts are stopped before a command.
func (l *leader) waitOf(t cluster.Topology, secs int) (time.Duration, error) {
	if secs >= 0 {
		return time.Duration(secs) * time.Second, nil
	}
	conf, err := config.OfJSON("", t.Version.Config)
	return conf.Duration("topology.message.timeout.secs"), err
}

func (l *leader) toggle(ctx context.Context, user, name string, command cluster.Command) error {
	t, err := l.find(user, name, cluster.ClassTopology)
	if err != nil {
		return err
	}
	status, err := cluster.Transition(name, t.Status, command)
	if err != nil || status == t.Status {
		return err
	}
	t.Status = status
	return l.wrote(l.topologies.set(ctx, name, t))
}

func (l *leader) rebalance(ctx context.Context, user string, r cluster.Rebalance) error {
	t, err := l.find(user, r.Name, cluster.ClassTopology)
	if err != nil {
		return err
	}
	if _, err := cluster.Transition(t.Name, t.Status, cluster.CommandRebalance); err != nil {
		return err
	}
	next, f := rebalanced(t.Version, r)
	checkQuotas(&f, next, facts{slotsMax: l.Conf.Int("nimbus.slots.perTopology"), tasksMax: l.Conf.Int("nimbus.executors.perTopology")})
	checkSize(&f, next)
	if _, set := r.Config[config.KeyBlobs]; set {
		checkBlobs(&f, next.Blobs, facts{user: user, permissions: l.permissions, blobs: l.blobOf})
	}
	for _, key := range l.Conf.List("nimbus.protected.keys") {
		if _, set := r.Config[key]; set {
			f.problem("%s may be set by no topology (nimbus.protected.keys)", key)
		}
	}
	wait, err := l.waitOf(t, r.WaitSecs)
	f.fail(err)
	if err := refused("topology "+t.Name+" cannot be rebalanced", f.problems); err != nil {
		return err
	}
	return l.exchange(ctx, t, cluster.CommandRebalance, next, wait, 0)
}

// rebalanced returns the version that a rebalance asks for, and what is wrong with it.
func rebalanced(v cluster.Version, r cluster.Rebalance) (cluster.Version, findings) {
	var f findings
	if r.Workers < 0 {
		f.problem("%d workers, at least 1 is needed", r.Workers)
	}
	own, err := config.OfJSON(config.FromFlag, r.Config)
	f.fail(err)
	now, err := config.OfJSON("", v.Config)
	f.fail(err)
	conf := config.Merge(now, own)
	v.Config = maps.Collect(conf.Set())
	f.fail(checkFixed(maps.Collect(now.Set()), v.Config))
	if _, set := r.Config["topology.workers"]; set {
		v.Workers = conf.Int("topology.workers")
	}
	if _, set := r.Config[config.KeyBlobs]; set {
		v.Blobs = blobsOf(conf)
	}
	if r.Workers > 0 {
		v.Workers = r.Workers
		v.Config["topology.workers"] = r.Workers
	}
	v.Components = slices.Clone(v.Components)
	v.Start = cluster.StartSpec{}
	f.problems = append(f.problems, retask(v.Components, r.Tasks, conf.Int("topology.key.groups"))...)
	return v, f
}

// retask gives components other numbers of tasks, and numbers all tasks anew.
func retask(components []cluster.ComponentSpec, tasks map[string]int, groups int) (problems []string) {
	var f findings
	var names []string
	for _, c := range components {
		names = append(names, c.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(tasks)) {
		n := tasks[id]
		i := slices.Index(names, id)
		switch {
		case i < 0:
			f.problem("component %q does not exist, did you mean %s?", id, config.Nearest(id, names))
		case n < 1:
			f.problem("component %q cannot have %d tasks, at least 1 is needed", id, n)
		case n > groups:
			f.problem("component %q cannot have %d tasks: topology.key.groups is %d", id, n, groups)
		default:
			components[i].Tasks = n
		}
	}
	next := 1
	for i := range components {
		components[i].FirstTask = next
		next += components[i].Tasks
	}
	return f.problems
}
