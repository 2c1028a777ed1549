// Package chaos runs whole clusters of real processes and breaks them: it kills and
// stops processes of every kind, cuts machines off from each other, and exchanges
// programs under way. What is counted in the end must be exact, whatever happened. All of
// it is in its tests; the programs that the clusters run are in programs.
//
// What is broken, and how:
//
//	process     kill -9, or stopped for longer than its lease and then let go on
//	network     a machine silently cut off from all, or two from each other, then healed
//	program     an update that works, one that panics, one that hangs
//
// Not broken here are disks (see internal/damage) and the steps of a commit, one by one
// (see internal/crash).
package chaos
