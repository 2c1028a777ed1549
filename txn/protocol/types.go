// Package protocol is the task's side of the commit protocol, pure: it decides in
// which order a task commits its batches, what it reports to the topology master,
// and what it acknowledges to its component.
package protocol

import (
	"time"

	"github.com/isobar-io/isobar/txn"
)

// Event is what happened to a task: past tense.
//
//sumtype:decl
type Event interface{ event() }

type (
	// BatchFinished: FinishBatch(n) returned and the barrier was forwarded.
	BatchFinished struct{ Batch txn.BatchID }
	// Committed: Commit(n) returned a handle.
	Committed struct {
		Batch txn.BatchID
		Data  []byte
	}
	// CommitFailed: Commit(n) returned an error; Fatal if txn.IsFatal.
	CommitFailed struct {
		Batch txn.BatchID
		Err   error
		Fatal bool
	}
	// AckReceived: the topology master says that n is the committed batch.
	AckReceived struct {
		Generation txn.Generation
		Batch      txn.BatchID
		Oldest     txn.BatchID // the oldest retained batch
		Last       bool        // the last batch before an orderly stop
	}
	// Acknowledged: the component's AckCommit(n) (and Publish) returned nil.
	Acknowledged struct{ Batch txn.BatchID }
	// AckFailed: it returned an error.
	AckFailed struct {
		Batch txn.BatchID
		Err   error
		Fatal bool
	}
	// TimePassed: a moment asked for with WakeAt has come, or any other.
	TimePassed struct{}
)

func (BatchFinished) event() {}
func (Committed) event()     {}
func (CommitFailed) event()  {}
func (AckReceived) event()   {}
func (Acknowledged) event()  {}
func (AckFailed) event()     {}
func (TimePassed) event()    {}

// Action is what the task must do: imperative. At most one Commit or Acknowledge
// is outstanding at a time; its outcome comes back as an event.
//
//sumtype:decl
type Action interface{ action() }

type (
	// Commit: call the component's Commit(n).
	Commit struct {
		Batch   txn.BatchID
		Attempt int // from 1
	}
	// Report: tell the topology master that n is committed by this task.
	Report struct {
		Batch txn.BatchID
		// Handles of all batches not yet acknowledged and in any case the newest.
		Handles []txn.Handle
	}
	// Acknowledge: call the component's AckCommit(n, oldest).
	Acknowledge struct {
		Batch, Oldest txn.BatchID
		Last          bool
	}
	// Confirm: tell the topology master that AckCommit(n) is done. Last as received.
	Confirm struct {
		Batch txn.BatchID
		Last  bool
	}
	// WakeAt: send TimePassed at or after this moment.
	WakeAt struct{ At time.Duration }
	// Ignore: the event was stale or a repeat. Count it.
	Ignore struct{ Event Event }
	// Fail: fail the region.
	Fail struct{ Err error }
)

func (Commit) action()      {}
func (Report) action()      {}
func (Acknowledge) action() {}
func (Confirm) action()     {}
func (WakeAt) action()      {}
func (Ignore) action()      {}
func (Fail) action()        {}

// Config describes the task.
type Config struct {
	Generation txn.Generation
	Restored   txn.BatchID  // the batch the task was restored to; 0 = fresh
	Handles    []txn.Handle // as restored
	// Ordered makes Commit(n) wait until n-1 is the committed batch: for components
	// whose Commit writes to the outside world (txn.OrderedCommitter).
	Ordered bool
	// RetryMin and RetryMax bound the doubling pause between attempts.
	RetryMin, RetryMax time.Duration
}
