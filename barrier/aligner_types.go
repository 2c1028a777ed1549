// Package barrier holds the pure rules of barriers: how a task aligns its inputs,
// and when the topology master injects the next barrier into a region.
//
// Nothing here has a goroutine, a clock, a lock, randomness or I/O.
package barrier

import "github.com/isobar-io/isobar/tuple"

// AlignEvent is what a task tells its Aligner: past tense.
//
//sumtype:decl
type AlignEvent interface{ alignEvent() }

// BarrierSeen says that the mark behind the tuples just read from an input is a
// barrier.
type BarrierSeen struct {
	Input      int
	Generation tuple.Generation
	Kind       tuple.MarkKind // MarkBarrier, MarkLastBarrier or MarkEnd
	Batch      tuple.BatchID
	Announced  uint64 // tuples the sender counted on this channel in the batch
	Received   uint64 // tuples the receiver counted
}

func (BarrierSeen) alignEvent() {}

// AlignAction is what the Aligner tells its task: imperative.
//
//sumtype:decl
type AlignAction interface{ alignAction() }

// Block: do not read this input until it is unblocked.
type Block struct{ Input int }

// Complete: the batch is in on all inputs. Finish it, take the snapshot, forward
// the barrier, in this order, before any further tuple is read.
type Complete struct {
	Batch tuple.BatchID
	Kind  tuple.MarkKind
}

// Unblock: read these inputs again.
type Unblock struct{ Inputs []int }

// Ignore: the barrier is of an older generation. Count it.
type Ignore struct{ Generation tuple.Generation }

// Reject: the channel has lost or doubled something. Fail the region.
type Reject struct{ Err error }

func (Block) alignAction()    {}
func (Complete) alignAction() {}
func (Unblock) alignAction()  {}
func (Ignore) alignAction()   {}
func (Reject) alignAction()   {}
