// Package schedule decides which processes of which topologies run where. A scheduler is a
// pure function from a View, what nimbus knows of the cluster, to a Plan: a Placement for
// each topology, with the conditions that keep it from being what was asked for.
//
//	s, err := schedule.New("even", schedule.Options{})
//	plan := s(schedule.View{Supervisors: …, Topologies: …})
//	plan[id].Workers    // where the workers run, and which tasks each has
//	plan[id].Master     // which supervisor runs the topology master
//	plan[id].Unplaced   // tasks that found no place: the topology cannot run yet
//	plan[id].Conditions // "wants 4 workers, 2 slots are free"
//
// # What holds for all of them
//
//   - The same View gives the same Plan, in whatever order supervisors, topologies, places
//     and configurations are listed.
//   - Each task has one place, or is listed as unplaced, with a condition that says why.
//   - No slot is given twice.
//   - A worker that is alive keeps its slot, its supervisor being alive or not, unless the
//     machine is not allowed to it any more, or is wanted for another topology alone.
//     A topology that needs nothing has the very same Placement as before, so that nothing
//     is written.
//   - Supervisors that are not alive, are unhealthy or are excluded get no new process.
//     What runs there stays: Cordon and Blacklist exclude, they do not evict.
//   - A slot whose worker was declared dead is used again only when no other is free. If the
//     worker is to leave its machine (Place.Avoid), so are all slots there.
//   - The topology master takes no slot. It stays where it is; a new one comes to the
//     supervisor with the fewest masters.
//   - Topologies that have waited longest choose first.
//   - topology.isolation.hosts, in the configuration of a topology, lists the only places
//     where it may run: host names, or labels as in pool=batch.
//
// # The schedulers
//
// "even" is Storm's DefaultScheduler with its EvenScheduler. As many slots as there are
// workers wanted, or as many as are free and its own; ports of a node in order, nodes with
// the most free slots first, one of each node in turn; tasks in the order of their first
// task dealt over those slots in turn. A worker whose number of tasks no even division has
// is dealt anew; other than in Storm it keeps its slot, as moving its process gains nothing.
//
// "isolation" is even, and gives topologies that the administrator names
// (isolation.scheduler.machines) so many machines for themselves alone, first of all; what
// else is there must go. Of Storm's IsolationScheduler it differs in that a topology that
// cannot have all of its machines is given those that there are.
//
// "resource" ignores topology.workers and packs tasks by the memory and CPU that they
// declare into workers of at most topology.worker.max.heap.size.mb, within what supervisors
// have. The order of tasks is that of R-Storm (Peng et al., "R-Storm: Resource-Aware
// Scheduling in Storm", Middleware 2015): components breadth first from the spouts, one
// task of each in turn, so that those that talk are neighbours. The order of nodes is that
// of Storm's DefaultResourceAwareStrategy: the one being filled, others of the topology,
// then those with the largest share of what is scarcest. Tasks of a topology that do not
// all fit are not placed at all, since it could not run.
//
// # Where things are
//
//	schedule.go   the types, New, and the order of the work
//	board.go      what is taken, and what is kept
//	even.go       slots and tasks by number       isolation.go   machines for one alone
//	resource.go   tasks by memory and CPU         masters.go     topology masters
//	exclude.go    Cordon and Blacklist            settings.go    keys of topologies
package schedule
