// Package metamorphic draws topologies at random, runs each of them several times over
// the same input with other parallelism, other settings and other misfortunes, and
// expects what a plain sequential model of the same topology expects. All of it is in
// its tests; TestTopologies says how to run more of them.
//
// A topology is a graph of nodes over records (draw_test.go). Every node knows what it
// makes of a multiset of records, which is the model, and how to do it as a spout or a
// bolt. A run is a row of incarnations (incarnation_test.go): each restores what the one
// before has left, and is stopped, is killed, or comes to the end of the input. A killed
// one is frozen in whatever it was doing (life_test.go), and wakes up later, when its
// successor has taken over: it must not do any harm then. What survives all of them is
// the world (world_test.go): the checkpoint store, and the systems that sinks write to.
package metamorphic
