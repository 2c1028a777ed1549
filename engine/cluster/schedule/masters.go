package schedule

import "cmp"

// placeMasters leaves masters where they are, and gives those that must move, or are new,
// to the supervisor with the fewest. A dead one goes back to its supervisor only if there
// is no other.
func (b *board) placeMasters() {
	masters := map[string]int{}
	for _, j := range b.jobs {
		if j.masterStays(b) {
			j.result.Master = j.Master
			masters[j.Master]++
		}
	}
	for _, j := range b.jobs {
		if j.result.Master != "" || j.fixed() || len(j.result.Workers) == 0 {
			continue
		}
		var best *Supervisor
		for _, s := range b.supervisors {
			if s.usable() && b.allows(j, s) && (best == nil || j.compareForMaster(s, best, masters) < 0) {
				best = s
			}
		}
		if best == nil {
			j.says("there is no supervisor for its topology master%s", j.settings.where())
			continue
		}
		j.result.Master = best.ID
		masters[best.ID]++
	}
}

func (j *job) masterStays(b *board) bool {
	return j.Master != "" && (j.fixed() || !j.MasterDead && b.mayStay(j, j.Master))
}

// compareForMaster tells which of two supervisors is better for a master; of equal ones the
// first is.
func (j *job) compareForMaster(x, y *Supervisor, masters map[string]int) int {
	leaves := func(s *Supervisor) int {
		if s.ID == j.Master {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(leaves(x), leaves(y)), cmp.Compare(masters[x.ID], masters[y.ID]))
}
