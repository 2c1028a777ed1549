package nimbus

import (
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/schedule"
	"github.com/isobar-io/isobar/engine/config"
)

// labelID is a label that every supervisor has in the scheduler's view: its own id.
const labelID = "supervisor"

// labelled returns a supervisor with its id as a label.
func labelled(s cluster.Supervisor) cluster.Supervisor {
	labels := map[string]string{}
	maps.Copy(labels, s.Labels)
	labels[labelID] = s.ID
	s.Labels = labels
	return s
}

// confined returns a topology as the scheduler is to see it: if its program or its
// checkpoints do not fit every supervisor, those that they fit are named one by one.
func confined(t cluster.Topology, supervisors []schedule.Supervisor) cluster.Topology {
	conf, err := config.OfJSON("", t.Version.Config)
	if err != nil {
		return t
	}
	hosts := conf.List(schedule.KeyHosts)
	var names []string
	others := false
	for _, s := range supervisors {
		fits := (t.Machine == "" || t.Machine == s.Machine) && (t.Version.Platform == "" || t.Version.Platform == s.OS)
		others = others || !fits
		if fits && (len(hosts) == 0 || slices.ContainsFunc(hosts, func(h string) bool { return isOn(h, s.Supervisor) })) {
			names = append(names, labelID+"="+s.ID)
		}
	}
	if !others {
		return t
	}
	if names == nil {
		names = []string{labelID + "="} // nobody: an empty list would be everybody
	}
	t.Version.Config = maps.Clone(t.Version.Config)
	t.Version.Config[schedule.KeyHosts] = strings.Join(names, ",")
	return t
}

// isOn reports whether one entry of topology.isolation.hosts fits a supervisor.
func isOn(host string, s cluster.Supervisor) bool {
	key, value, label := strings.Cut(host, "=")
	if !label {
		return host == s.Host
	}
	has, ok := s.Labels[key]
	return ok && has == value
}
