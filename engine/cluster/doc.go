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
//	blobs               KeyOfBlob       BlobRecord    nimbus        nimbus
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
package cluster
