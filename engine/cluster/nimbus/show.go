package nimbus

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// list returns the topologies that a user may see.
func (l *leader) list(user string) []cluster.Summary {
	all := []cluster.Summary{}
	for name, t := range l.topologies.all() {
		if l.permissions.Allow(user, cluster.ClassReadOnly, name, audience(t)) != nil {
			continue
		}
		s := cluster.Summary{
			Name: name, ID: t.ID, Owner: t.Owner, Status: t.Status,
			Tasks: tasks(t.Version.Components), Wanted: t.Version.Workers,
			UptimeSecs: int64(time.Since(t.Launched) / time.Second), Error: t.Error,
		}
		if b := l.own[t.ID]; b != nil && b.run != nil && b.run.Epoch == t.Version.Epoch {
			s.Workers = len(b.run.Workers)
		}
		all = append(all, s)
	}
	return all
}

// status returns all about a topology. What looks like a secret is not shown.
func (l *leader) status(user, name string) (cluster.Detail, error) {
	t, err := l.find(user, name, cluster.ClassReadOnly)
	if err != nil {
		return cluster.Detail{}, err
	}
	now := time.Now()
	t.Version = shown(t.Version)
	for _, v := range []**cluster.Version{&t.Before, &t.Next} {
		if *v != nil {
			masked := shown(**v)
			*v = &masked
		}
	}
	d := cluster.Detail{Topology: t, RunAgeSecs: l.heard.silence(masterOf(t.ID), now).Seconds()}
	if a, ok := l.assignments.get(t.ID); ok {
		a.Version = shown(a.Version)
		d.Assignment = &a
	}
	if b := l.own[t.ID]; b != nil {
		d.Run = b.run
	}
	if why := l.waiting[name]; why != "" {
		d.Conditions = append(d.Conditions, why)
	}
	for id, s := range l.supervisors.all() {
		for _, p := range s.Processes {
			if p.ID != t.ID {
				continue
			}
			p.Supervisor = id
			d.Processes = append(d.Processes, p)
			if l.silentSupervisor(id, now) {
				d.Conditions = append(d.Conditions, fmt.Sprintf("supervisor %s, which has its %s process, has been silent for %.0f s", id, p.Role, l.heard.silence(id, now).Seconds()))
			}
		}
	}
	return d, nil
}

var secretKey = regexp.MustCompile(`(?i)passw|secret|token|credential|private`)

// shown returns a version without what looks like a secret by its name.
func shown(v cluster.Version) cluster.Version {
	v.Config = maps.Clone(v.Config)
	for key := range v.Config {
		if secretKey.MatchString(key) {
			v.Config[key] = "***"
		}
	}
	return v
}

// known returns the last heartbeats of all supervisors. One that is silent is not healthy.
func (l *leader) known() []cluster.Supervisor {
	all := []cluster.Supervisor{}
	now := time.Now()
	for id, s := range l.supervisors.all() {
		if l.silentSupervisor(id, now) {
			s.Unhealthy = fmt.Sprintf("silent for %.0f s", l.heard.silence(id, now).Seconds())
		}
		all = append(all, s)
	}
	return all
}

func (l *leader) health() cluster.Health {
	now := time.Now()
	h := cluster.Health{Leader: l.ID}
	for id, s := range l.supervisors.all() {
		switch {
		case l.silentSupervisor(id, now):
			h.Problems = append(h.Problems, fmt.Sprintf("supervisor %s has been silent for %.0f s", id, l.heard.silence(id, now).Seconds()))
			continue
		case s.Unhealthy != "":
			h.Problems = append(h.Problems, fmt.Sprintf("supervisor %s is not healthy: %s", id, s.Unhealthy))
		}
		h.Supervisors++
		h.Slots += len(s.Ports)
	}
	h.Problems = append(h.Problems, l.strangers(now)...)
	for _, a := range l.assignments.all() {
		h.UsedSlots += len(a.Workers)
		if _, ok := l.nameOf(a.ID); !ok {
			h.Problems = append(h.Problems, fmt.Sprintf("there is an assignment of %s, and no topology: it is ended in a while", a.ID))
		}
	}
	for name, t := range l.topologies.all() {
		h.Topologies++
		if t.Status == cluster.Failed {
			h.Problems = append(h.Problems, fmt.Sprintf("topology %s has failed: %s", name, t.Error))
		}
		if why := l.waiting[name]; why != "" {
			h.Problems = append(h.Problems, fmt.Sprintf("topology %s: %s", name, why))
			continue
		}
		for _, why := range l.troubles(t, now) {
			h.Problems = append(h.Problems, fmt.Sprintf("topology %s: %s", name, why))
		}
	}
	for _, damaged := range []map[string]damage{l.topologies.damaged, l.assignments.damaged, l.supervisors.damaged, l.secrets.damaged, l.blobs.damaged} {
		for _, err := range damaged {
			h.Problems = append(h.Problems, err.Error())
		}
	}
	slices.Sort(h.Problems)
	return h
}

// troubles returns what keeps a topology that is to run from doing so, as its master and
// the supervisors tell.
func (l *leader) troubles(t cluster.Topology, now time.Time) []string {
	if t.Status != cluster.Active && t.Status != cluster.Inactive {
		return nil
	}
	var all []string
	b := l.own[t.ID]
	switch run := statusOf(b, t); {
	case run == nil && now.Sub(t.Launched) > l.limits.task:
		all = append(all, "its topology master has not come up yet")
	case run == nil:
	default:
		if silent := l.heard.silence(masterOf(t.ID), now); silent > l.limits.task {
			all = append(all, fmt.Sprintf("its topology master has been silent for %.0f s", silent.Seconds()))
		}
		if run.Error != "" {
			all = append(all, run.Error)
		}
		if why := run.SaysUnlinked(); why != "" {
			all = append(all, why)
		} else if since := now.Sub(b.still); !b.still.IsZero() && since > l.limits.task {
			all = append(all, fmt.Sprintf("it has not run for %.0f s: it waits for workers, or is being restored; see isobar status and get-errors", since.Seconds()))
		}
		for _, r := range run.Regions {
			for _, why := range r.Degraded {
				all = append(all, fmt.Sprintf("region %s: %s", r.Name, why))
			}
		}
	}
	for p, text := range l.ends(t) {
		if !p.Running && p.Restarts > 0 {
			all = append(all, text)
		}
	}
	return all
}

// ends yields the processes of a topology's version of which one has ended, and how.
func (l *leader) ends(t cluster.Topology) iter.Seq2[cluster.ProcessStatus, string] {
	return func(yield func(cluster.ProcessStatus, string) bool) {
		for _, s := range l.supervisors.all() {
			for _, p := range s.Processes {
				if p.ID != t.ID || p.Epoch != t.Version.Epoch || p.Exit == "" {
					continue
				}
				text := fmt.Sprintf("its %s on %s was started %d times and ended at last with %s", p.Role, s.ID, p.Restarts+1, p.Exit)
				if p.Restarts == 0 {
					text = fmt.Sprintf("its %s on %s: %s", p.Role, s.ID, p.Exit)
				}
				if !yield(p, text) {
					return
				}
			}
		}
	}
}

// strangers names the topologies that are not known and run all the same, as after the store
// has lost its records.
func (l *leader) strangers(now time.Time) []string {
	var all []string
	for id, s := range l.supervisors.all() {
		if l.silentSupervisor(id, now) {
			continue
		}
		var ids []string
		for _, p := range s.Processes {
			name, ok := cluster.NameOfID(p.ID)
			_, assigned := l.assignments.get(p.ID)
			_, damaged := l.assignments.damaged[p.ID]
			if !ok || !p.Running || assigned || damaged || slices.Contains(ids, p.ID) {
				continue
			}
			_, known := l.topologies.get(name)
			if _, damaged := l.topologies.damaged[name]; known || damaged {
				continue
			}
			ids = append(ids, p.ID)
			all = append(all, fmt.Sprintf("supervisor %s runs %s, which is not known here (NATS has lost its records?): submit %s again with --from latest, and kill it then if it is not wanted", id, p.ID, name))
		}
	}
	return all
}

// statusOf returns what the master of a topology's version has told last, or nil.
func statusOf(b *bucket, t cluster.Topology) *cluster.RunStatus {
	if b == nil || b.run == nil || b.run.Epoch != t.Version.Epoch {
		return nil
	}
	return b.run
}

// nameOf returns the name of a topology by its id.
func (l *leader) nameOf(id string) (string, bool) {
	for name, t := range l.topologies.all() {
		if t.ID == id {
			return name, true
		}
	}
	return "", false
}
