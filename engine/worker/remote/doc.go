// Package remote lets a topology master lead workers in other processes: Crew is the
// master's end, Serve the worker's.
//
// A worker dials its topology master, and both prove that they know the secret of their
// epoch. Then they exchange messages in JSON, each behind its length, over that one
// connection for as long as both live:
//
//	master → worker   restore, start, stop, spout, ack; quit when the run is over
//	worker → master   event, ended, report, counts
//	both              ping, when nothing else is to be said
//
// A connection that breaks, or on which nothing came for the lease, is over: the master
// fails the regions that have tasks there, the worker stops all of its tasks and dials
// again. So neither needs to know why.
package remote
