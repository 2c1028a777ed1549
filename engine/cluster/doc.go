// Package cluster holds what the processes of a cluster agree on: the records that
// they keep in the coordination store, the interfaces to that store, the requests that
// nimbus answers, and the pure rules by which names are checked and states change.
//
// What is kept here is intent, assignments and heartbeats. What is committed is known
// by the checkpoint store alone: losing every bucket loses no committed batch.
//
//	bucket              key             value         written by    read by
//	topologies          NAME            Topology      nimbus        nimbus
//	assignments         ID              Assignment    nimbus        supervisors
//	                    mark            text          nimbus        supervisors
//	supervisors         SUPERVISOR      Supervisor    supervisors   nimbus
//	secrets             ID              Secrets       nimbus        supervisors
//	blobs               KeyOfBlob       BlobRecord    nimbus        nimbus, supervisors
//	nimbus              leader          Lease         nimbus        nimbus
//	                    ids             nothing       nimbus        nobody: its revisions number topologies
//	topology-ID         intent          Intent        nimbus        topology master
//	                    assignment      Assignment    nimbus        topology master
//	                    credentials     Credentials   nimbus        topology master, workers
//	                    master          MasterRecord  master        workers, supervisors
//	                    status          RunStatus     master        nimbus
//
// Everything is level-triggered: whoever reads a record does what it takes to get there,
// so that a message that was lost costs time and nothing else.
//
// # What ends a process
//
// The order to end a topology's processes is Assignment.Stop. Nimbus deletes the key of
// an assignment only after that, when no supervisor that is alive reports a process of it
// any more. A supervisor that was away in between finds the key gone. It tells this from a
// store that has lost everything by [KeyMark] in the same bucket: a random text that nimbus
// writes when it finds none.
//
//   - The mark is the one under which the supervisor has seen the assignment (it keeps both
//     on disk): the assignment was ended, and its processes are.
//   - The mark is another, or there is none: the bucket was made anew, and that something is
//     not in it means nothing. What runs goes on, until there is an assignment of it with
//     Stop, or one of the same topology name with another ID, which takes its place.
//
// A topology that runs on after nimbus has lost its record is taken up again by submitting it
// under its name with --from latest: its new topology master raises the generation, and so
// fences the old one. Until then nimbus does not know of it.
package cluster
