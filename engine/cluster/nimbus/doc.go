// Package nimbus is the daemon that runs a cluster: it takes submissions, decides where
// topologies run, watches them, and answers questions about them. Several may run; the one
// that holds the lease leads and the others stand by.
//
// Each request and each look at the world happens on one goroutine, the leader's. It gathers
// what is known of a topology into a view, asks decide, which is pure, what is to be, and
// writes what differs. Whatever was not carried out is found again at the next look.
//
// # Fencing
//
// A leader knows from its own clock when its lease ends, writes nothing after that, and
// stops some time before, so that it has ended when others may begin. What a write that was
// under way may still do then, the next leader prevents: it writes every record once before
// it decides anything, and records are only ever written over the revision that was read.
//
// # Liveness
//
// How long somebody has been silent is counted by the leader's own clock from when his
// record last changed, or, if that is later, from when the leader began to lead or the store
// came back. What a record says of time is never looked at, and while the store does not
// answer nobody is judged at all.
package nimbus
