// Package supervisor is the agent of a cluster on each machine. It fetches the programs
// of topologies, starts their processes where nimbus has assigned them, watches them,
// starts them again, and ends them.
//
// Package slots decides; this package does what it says. One goroutine, the loop, owns
// the decisions; whatever may take time has a goroutine of its own, and the heartbeat
// shares nothing with any of them.
//
//	DIR/lock                           held while a supervisor runs
//	DIR/id                             who it is
//	DIR/state.json                     what it was told, and what it has started
//	DIR/binaries/SHA256                programs
//	DIR/blobs/KEY/SHA256               files of users; KEY is a hash of the key
//	DIR/topologies/ID/PORT/            working folder of a worker; of a topology master: master
//	DIR/topologies/ID/PORT/.isobar/    what belongs to its present process
//	DIR/topologies/ID/secrets.json     of the topology, for when the store does not answer
//	DIR/logs/ID/worker-PORT.log        what it writes; see logs.go for how long
//	DIR/trash/                         what is being deleted
//
// Processes outlive their supervisor, however it ends. The next one finds them by what
// state.json says, and on Linux by their environment, too, so that one which was started
// and not yet noted is found as well. Elsewhere such a process is lost: its successor
// fences it.
package supervisor
