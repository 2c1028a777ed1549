package checkpoint

import (
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// Task describes one task of a region to its Coordinator.
type Task struct {
	ID    TaskID
	Spout bool // gets barriers injected, and says when it has finished
	// Reports is set for spouts, stateful and keyed bolts, and bolts without
	// downstream: a batch is complete when all of them have reported it, and all of
	// them are told of commits.
	Reports bool
}

// Config describes a region to its Coordinator.
type Config struct {
	Region   string
	Tasks    []Task
	Interval time.Duration // between barriers
	// MaxPending is how many batches may be closed and not committed; 0 = no limit.
	MaxPending int
	// SnapshotTimeout is after which a batch's checkpoint is given up; 0 = never.
	SnapshotTimeout time.Duration
	// AckRepeat is the pause after which an unconfirmed AckCommit is sent again;
	// 0 = never.
	AckRepeat time.Duration
	// RestartMin and RestartMax bound the doubling pause before a restart. A commit
	// resets it.
	RestartMin, RestartMax time.Duration
	// MaxRestarts is how many restarts without a commit between them fail the
	// region; 0 = no limit.
	MaxRestarts int
	// From, if set, is what the region begins from instead of its current checkpoint.
	From *Target
	// StoreRetry is the pause before a failed manifest write is repeated.
	StoreRetry time.Duration
}

// Event is what happened to a region: past tense. Events that carry a Generation
// older than the region's are void.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Started: begin. First event, once.
	Started struct{}
	// GenerationRaised: the head has been moved to give the region a new generation.
	GenerationRaised struct {
		Generation Generation
		From       *Ref // the checkpoint to go on from; nil = from the beginning
		Oldest     BatchID
	}
	// TaskReady: the task's old goroutines have ended, the new instance is restored.
	TaskReady struct {
		Generation Generation
		Task       TaskID
	}
	// InputChanged: a spout task emitted a tuple or moved a position for the first
	// time since it last closed a batch, or a timer fired.
	InputChanged struct {
		Generation Generation
		Task       TaskID
		After      BatchID // the last batch the task had closed
	}
	// SnapshotReported: the task has committed the batch; the snapshot is cumulative.
	SnapshotReported struct {
		Generation Generation
		Task       TaskID
		Batch      BatchID
		Snapshot   TaskSnapshot
	}
	// StoreFailed: the task could not store what it commits and will try again; the
	// store may be unreachable.
	StoreFailed struct {
		Generation Generation
		Task       TaskID
		Err        error
	}
	// SpoutFinished: the spout task has emitted all its input. It goes on passing
	// barriers.
	SpoutFinished struct {
		Generation Generation
		Task       TaskID
	}
	// ManifestStored: the manifest of the batch is durable and verified.
	ManifestStored struct {
		Generation Generation
		Ref        Ref
	}
	// ManifestFailed: it could not be stored; the store may be unreachable.
	ManifestFailed struct {
		Generation Generation
		Batch      BatchID
		Err        error
	}
	// HeadMoved: the batch is committed.
	HeadMoved struct {
		Generation Generation
		Batch      BatchID
		Oldest     BatchID // the oldest retained batch
	}
	// HeadFailed: the head could not be written yet. The Mover goes on trying; the
	// outcome will be a HeadMoved, a GenerationRaised or a Fenced.
	HeadFailed struct {
		Generation Generation // 0 for a RaiseGeneration
		Err        error
	}
	// Fenced: another writer has moved the head. This one is over.
	Fenced struct{ Err error }
	// AckConfirmed: the task has acknowledged the batch.
	AckConfirmed struct {
		Generation Generation
		Task       TaskID
		Batch      BatchID
		Last       bool
	}
	// TaskFailed: user code, a channel or a process failed. Err says where.
	TaskFailed struct {
		Generation Generation
		Task       TaskID
		Err        error
		// Learned is set if what was learned from the failure keeps it from happening
		// again: restarts are counted afresh.
		Learned bool
	}
	// RestoreFailed: the checkpoint cannot be restored and trying again cannot help.
	RestoreFailed struct {
		Generation Generation
		Err        error
	}
	// CheckpointRequested: take a checkpoint now, whatever the interval.
	CheckpointRequested struct{}
	// RollbackRequested: go on from another checkpoint than the current one. What is
	// under way is given up.
	RollbackRequested struct{ To Target }
	// StopRequested: take a last checkpoint, then finish.
	StopRequested struct{}
	// TimePassed: a moment asked for with WakeAt has come, or any other.
	TimePassed struct{}
)

func (Started) event()             {}
func (GenerationRaised) event()    {}
func (TaskReady) event()           {}
func (InputChanged) event()        {}
func (SnapshotReported) event()    {}
func (StoreFailed) event()         {}
func (SpoutFinished) event()       {}
func (ManifestStored) event()      {}
func (ManifestFailed) event()      {}
func (HeadMoved) event()           {}
func (HeadFailed) event()          {}
func (Fenced) event()              {}
func (AckConfirmed) event()        {}
func (TaskFailed) event()          {}
func (RestoreFailed) event()       {}
func (CheckpointRequested) event() {}
func (RollbackRequested) event()   {}
func (StopRequested) event()       {}
func (TimePassed) event()          {}

// Action is what the topology master must do for a region: imperative, in order.
//
//sumtype:decl
type Action interface{ action() }

type (
	// StopTasks: end the tasks of this generation; whatever they still do is void.
	StopTasks struct{ Generation Generation }
	// RaiseGeneration: move the head so that the region has a new generation.
	RaiseGeneration struct {
		To *Target // if set, what is to be the current checkpoint from then on
		// In Generation, the last, everything up to batch Settled was published.
		Generation Generation
		Settled    BatchID
	}
	// Restore: wait until the tasks of older generations have ended, make new ones
	// from the checkpoint, and answer TaskReady for each or RestoreFailed.
	Restore struct {
		Generation Generation
		From       *Ref
	}
	// StartTasks: all tasks are ready; let them run. Next is the first batch. With Hold
	// the spouts emit nothing until a Resume.
	StartTasks struct {
		Generation Generation
		Next       BatchID
		Hold       bool
	}
	// InjectBarrier: send the barrier to every spout task. With Pause the spouts
	// emit nothing after it until Resume or a next barrier without Pause.
	InjectBarrier struct {
		Generation Generation
		Batch      BatchID
		Kind       tuple.MarkKind
		Pause      bool
	}
	// Resume: let paused spouts emit again.
	Resume struct{ Generation Generation }
	// StoreManifest: build the manifest from the snapshots and store it. Everything
	// it names is already durable. Tasks are in order of TaskID.
	StoreManifest struct {
		Generation Generation
		Batch      BatchID
		Ended      bool
		Tasks      []TaskSnapshot
	}
	// MoveHead: make Ref the current checkpoint of the region: the commit point.
	MoveHead struct {
		Generation Generation
		Ref        Ref
		Settled    BatchID // everything up to this batch is published
	}
	// AckCommit: tell these tasks that all batches up to Batch are committed.
	AckCommit struct {
		Generation    Generation
		Batch, Oldest BatchID
		Last          bool
		Tasks         []TaskID
	}
	// GiveUp: the checkpoint of this batch will not be completed; later ones cover
	// it. Late are the tasks that did not report. For logs and metrics only.
	GiveUp struct {
		Batch BatchID
		Late  []TaskID
		Err   error // why, if not the tasks
	}
	// Finish: the region is done and everything it has committed is acknowledged. The
	// head should say so, but nobody waits for that long.
	Finish struct {
		Outcome    Outcome
		Generation Generation
		Settled    BatchID // the current checkpoint's, if there is one
	}
	// FailRegion: the region is over, its checkpoints kept.
	FailRegion struct{ Err error }
	// Note: the event was stale or a repeat, or there is something to log.
	Note struct{ Text string }
	// WakeAt: send TimePassed at or after this moment.
	WakeAt struct{ At time.Duration }
)

func (StopTasks) action()       {}
func (RaiseGeneration) action() {}
func (Restore) action()         {}
func (StartTasks) action()      {}
func (InjectBarrier) action()   {}
func (Resume) action()          {}
func (StoreManifest) action()   {}
func (MoveHead) action()        {}
func (AckCommit) action()       {}
func (GiveUp) action()          {}
func (Finish) action()          {}
func (FailRegion) action()      {}
func (Note) action()            {}
func (WakeAt) action()          {}

// Outcome says how a region ended in order.
type Outcome int

// The outcomes.
const (
	Completed Outcome = iota // all input has been processed
	Stopped                  // it was asked to stop
)
