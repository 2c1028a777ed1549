package task

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// spout runs a spout task.
type spout struct {
	*task
	user      txn.Spout
	positions map[txn.PartitionID][]byte // as restored
	owned     map[txn.PartitionID]bool

	closed   tuple.BatchID // the last batch that was closed
	changed  bool          // something happened since
	paused   bool
	inactive bool // an operator wants no input
	last     bool // the last barrier is out
	finished bool

	emitted uint64
	pause   time.Duration // how long to idle
	askAt   time.Duration // when to ask for partitions again
}

// Bounds of the pause after an idle NextTuple, and of asking for new partitions.
const (
	idleMin       = 100 * time.Microsecond
	idleMax       = 100 * time.Millisecond
	partitionsAsk = time.Second
)

func openSpout(t *task) (*spout, error) {
	t.inst = t.env.Factory(t.comp.ID)
	s := &spout{
		task:      t,
		user:      t.inst.(txn.Spout),
		positions: map[txn.PartitionID][]byte{},
		owned:     map[txn.PartitionID]bool{},
		closed:    t.restore.Batch,
		pause:     idleMin,
	}
	if err := t.callOpen(); err != nil {
		return nil, err
	}
	for _, snap := range t.snapshots() {
		for _, p := range snap.Positions {
			if txn.PartitionTask(p.Partition, t.comp.Tasks) == t.Index {
				s.positions[p.Partition] = p.Data
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.positions)) {
		s.owned[p] = true
		if err := s.user.Seek(p, s.positions[p]); err != nil {
			return nil, fmt.Errorf("seek partition %q: %w", p, err)
		}
	}
	return s, s.askPartitions()
}

// askPartitions takes over the partitions that are new.
func (s *spout) askPartitions() error {
	s.askAt = s.env.Now() + partitionsAsk
	ids, err := s.user.Partitions(s.gen.ctx)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, p := range ids {
		if s.owned[p] || txn.PartitionTask(p, s.comp.Tasks) != s.Index {
			continue
		}
		if err := checkPartition(p); err != nil {
			return err
		}
		s.owned[p] = true
		if err := s.user.Seek(p, nil); err != nil {
			return fmt.Errorf("seek partition %q: %w", p, err)
		}
	}
	return nil
}

// checkPartition refuses a name that JSON would change on its way to the topology master and
// into the manifest: the position would belong to no partition any more.
func checkPartition(p txn.PartitionID) error {
	switch {
	case p == "": // nor could a manifest keep it
		return txn.Fatal(errors.New("a partition has an empty name"))
	case !utf8.ValidString(string(p)):
		return txn.Fatal(fmt.Errorf("partition %q is not UTF-8", p))
	}
	return nil
}

// checkMoved refuses a position that another task tells too: which of them is right could
// not be known after a restart.
func (s *spout) checkMoved(moved []txn.Position) error {
	for _, p := range moved {
		if err := checkPartition(p.Partition); err != nil {
			return err
		}
		if !s.owned[p.Partition] {
			return fmt.Errorf("it moved in partition %q, which this task was not told to read (Seek)", p.Partition)
		}
	}
	return nil
}

func (s *spout) loop() error {
	for !s.gen.over() {
		if s.mail.Pending() {
			for _, c := range s.mail.Take() {
				if err := s.control(c); err != nil {
					return err
				}
			}
		}
		if s.flushDue() {
			s.flushOut()
			if s.env.Now() >= s.askAt && !s.finished {
				if err := s.askPartitions(); err != nil {
					return err
				}
			}
		}
		if s.paused || s.inactive || s.finished || s.last {
			s.sleep(nil)
			continue
		}
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// activate starts or stops the input on behalf of an operator.
func (s *spout) activate(a Activity) error {
	if a == Unchanged || s.inactive == (a == Inactive) {
		return nil
	}
	s.inactive = a == Inactive
	user, ok := s.inst.(txn.Activator)
	switch {
	case !ok:
		return nil
	case s.inactive:
		return user.Deactivate()
	}
	return user.Activate()
}

// wake is Context.Wake. The spout may be on its way from NextTuple to its sleep,
// where no bell is heard: the flag tells it that the answer of NextTuple is old.
func (t *task) wake() {
	t.woken.Store(true)
	t.bell.Ring()
}

func (s *spout) next() error {
	if s.woken.Load() {
		s.woken.Store(false)
	}
	status, err := s.user.NextTuple(s.out)
	if err != nil {
		return fmt.Errorf("next tuple: %w", err)
	}
	if status == txn.Emitted || s.out.Emitted() != s.emitted {
		s.emitted = s.out.Emitted()
		s.pause = idleMin
		if !s.changed {
			s.changed = true
			s.env.Post(checkpoint.InputChanged{Generation: s.gen.Number, Task: checkpoint.TaskID(s.ID), After: s.closed})
		}
	}
	switch status {
	case txn.Emitted:
	case txn.Idle:
		timer := time.NewTimer(s.pause)
		s.sleep(timer.C)
		timer.Stop()
		s.pause = min(2*s.pause, idleMax)
	case txn.Finished:
		s.finished = true
		s.out.EmitIdle()
		s.flushOut()
		s.env.Post(checkpoint.SpoutFinished{Generation: s.gen.Number, Task: checkpoint.TaskID(s.ID)})
	default:
		return fmt.Errorf("next tuple returned status %d: it must be Emitted, Idle or Finished", status)
	}
	return nil
}

// sleep flushes and waits for control, for Wake, or for the timer.
func (s *spout) sleep(timer <-chan time.Time) {
	s.flushOut()
	s.bell.Arm()
	defer s.bell.Disarm()
	if s.mail.Pending() || timer != nil && s.woken.Load() {
		return
	}
	s.Activity.Enter(measure.Idle)
	defer s.Activity.Enter(measure.Busy)
	select {
	case <-s.bell.C():
	case <-s.mail.Signal():
	case <-timer:
	case <-s.gen.ctx.Done():
	}
}

func (s *spout) flushOut() {
	s.out.Flush()
	s.count()
}

// control does what the topology master says.
func (s *spout) control(c Control) error {
	if c.Hold || c.Resume {
		s.paused = c.Hold
	}
	if err := s.activate(c.Activity); err != nil {
		return err
	}
	if c.Kind == tuple.MarkNone {
		return nil
	}
	if s.last {
		return errBarrierAfterEnd
	}
	began := s.env.Now()
	s.Wait.Observe(began-c.At, 1)
	s.env.Hook("finish.before")
	moved, err := s.user.FinishBatch(c.Batch)
	if err != nil {
		return fmt.Errorf("finish batch %d: %w", c.Batch, err)
	}
	if err := s.checkMoved(moved); err != nil {
		return fmt.Errorf("finish batch %d: %w", c.Batch, err)
	}
	s.held(began, 0)
	s.out.Mark(tuple.Mark{Kind: c.Kind, Batch: c.Batch})
	s.count()
	s.env.Hook("finish.after")
	for _, h := range s.env.Hooks {
		h.BatchFinished(s.ctx, c.Batch)
	}
	s.closed, s.changed, s.paused = c.Batch, false, c.Pause
	if s.com != nil {
		s.com.batchFinished(c.Batch, spoutState{moved: moved, finished: s.finished})
	}
	if !s.env.Barriers {
		s.last = true
		s.env.Post(checkpoint.AckConfirmed{Generation: s.gen.Number, Task: checkpoint.TaskID(s.ID), Last: true})
	}
	return nil
}
