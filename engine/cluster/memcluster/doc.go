// Package memcluster is a coordination store in memory, with the faults of a real one
// at a test's command. It passes the same suite as the real one, clustertest.
//
//	server := memcluster.New()
//	nimbus := server.Connect("nimbus") // a *Store, which is a cluster.Store
//
//	server.Stop()       // nobody is answered until Start; nothing is lost
//	nimbus.Cut()        // this client is not answered until Heal; others are
//	nimbus.Unknown()    // its next write is done, and yet it is told ErrUnavailable
//	nimbus.LoseReply()  // its next request is handled, and yet it is told ErrUnavailable
//	server.Wipe()       // all buckets and objects are gone
//	server.Damage(objects, name) // an object's content is not what it was
//	nimbus.Close()      // the process has ended
//
// Whatever has no answer fails at once, with cluster.ErrUnavailable: there is no time in
// this package, only channels and short mutexes, so it runs in bubbles of
// testing/synctest. A server belongs to the bubble that it was made in.
//
// Where the interface leaves a choice, the store makes the one that is worse for its
// user, as far as the real one may make it too: a watch skips values that were replaced
// before they were received, what was on its way when an outage began is lost, and the
// revisions of a bucket that is made again begin again.
package memcluster
