package schedule

import (
	"cmp"
	"slices"
)

// isolate is even, with machines for some topologies alone.
func isolate(v View, machines map[string]int) Plan {
	b := newBoard(v)
	for _, j := range b.jobs {
		if n := machines[j.Record.Name]; n > 0 {
			b.own(j, n)
		}
	}
	b.keep()
	for _, j := range b.jobs {
		b.spread(j)
	}
	return b.plan()
}

// machine is a machine that a topology may have for itself.
type machine struct {
	name        string
	own, others int // processes that are alive
	slots       int // of usable supervisors
	avoided     int // 1: the topology had better leave it
}

// own chooses machines for a topology: those where it is, then those that it need not leave,
// then those whose owner drives out the fewest, then those with the most slots.
func (b *board) own(j *job, n int) {
	b.isolated[j] = true
	candidates := slices.DeleteFunc(b.machines(j), func(m machine) bool { return m.slots == 0 && m.own == 0 })
	slices.SortFunc(candidates, func(x, y machine) int {
		return cmp.Or(
			cmp.Compare(y.own, x.own),
			cmp.Compare(x.avoided, y.avoided),
			cmp.Compare(x.others, y.others),
			cmp.Compare(y.slots, x.slots),
			cmp.Compare(x.name, y.name),
		)
	})
	if len(candidates) < n && !j.fixed() {
		j.says("wants %s for itself, %s there%s", count(n, "machine", "machines"), count(len(candidates), "is", "are"), j.settings.where())
	}
	for _, m := range candidates[:min(n, len(candidates))] {
		b.owners[m.name] = j
	}
}

// machines returns all machines that nobody else owns.
func (b *board) machines(j *job) []machine {
	found := map[string]*machine{}
	for _, s := range b.supervisors {
		if b.owners[s.machine()] != nil || !j.settings.allows(s) {
			continue
		}
		m := found[s.machine()]
		if m == nil {
			m = &machine{name: s.machine()}
			if j.avoided[m.name] {
				m.avoided = 1
			}
			found[m.name] = m
		}
		if s.usable() {
			m.slots += len(s.Ports)
		}
		for _, other := range b.jobs {
			if n := other.processesOn(s.ID); other == j {
				m.own += n
			} else {
				m.others += n
			}
		}
	}
	var all []machine
	for _, m := range found {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(x, y machine) int { return cmp.Compare(x.name, y.name) })
	return all
}

// processesOn counts what is alive of a topology on a supervisor.
func (j *job) processesOn(supervisor string) int {
	n := 0
	if j.Master == supervisor && !j.MasterDead {
		n++
	}
	for _, p := range j.Places {
		if p.Supervisor == supervisor && !p.Dead {
			n++
		}
	}
	return n
}
