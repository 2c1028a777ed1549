package txn

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// OrderedCommitter is a stateful bolt whose Commit writes to the outside world:
// Commit(n) is called only after n-1 is the current checkpoint, so that the outside
// is never more than one batch ahead of it. After a crash batch n comes again under
// the same number, though perhaps with other tuples in it; the bolt's update rule must
// make that right. In a region that has one no checkpoint is given up.
type OrderedCommitter interface {
	StatefulBolt
	// CommitsInOrder does nothing; it marks the bolt.
	CommitsInOrder()
}

// Rescaler is implemented by stateful bolts that may be run by another number of tasks
// than before. Each new task calls Rescale once, before InitState, with the handles of
// all old tasks by their index, and returns those that it takes over; every old
// task's handles must be taken over by exactly one new task.
type Rescaler interface {
	Rescale(old [][]Handle, task, tasks int) ([]Handle, error)
}

// TwoPhaseSink is a sink to a system where output can be made durable before it is
// made visible: files that are renamed, or transactions that can be prepared. The
// engine makes the five calls of [StatefulBolt] for it.
type TwoPhaseSink interface {
	Bolt

	// Finish ends a batch on the task's goroutine and returns what Prepare will need,
	// unaffected by later tuples; nil if the batch has no output, which needs no
	// transaction.
	Finish(id TransactionID) (output any, err error)

	// Prepare makes the output durable and publishes nothing. The data it returns are
	// given to Publish, maybe by another process. It is repeated on error.
	Prepare(ctx context.Context, id TransactionID, output any) (data []byte, err error)

	// Publish makes a prepared transaction visible. It is called in batch order and may
	// be repeated, also after a restart: it must be idempotent.
	Publish(ctx context.Context, id TransactionID, data []byte) error

	// Discard removes, before the first tuple, everything prepared for which void
	// returns true: transactions of dead generations that were never committed. void
	// may be asked about any id (see ParseTransactionID), and returns false for those
	// of others.
	Discard(ctx context.Context, void func(TransactionID) bool) error
}

// StagedSink is a sink to a system without two phases, but with atomic writes: output
// is staged in the checkpoint itself and published together with a marker. Embed
// [Stage] and add records to it in Execute. What a batch stages travels in the
// manifest, so keep it small: some megabytes at the most.
type StagedSink interface {
	Bolt
	stage() *Stage

	// Publish writes the records of a transaction, and id as the marker of its
	// component and task, in one atomic step. If the marker is that of id or of a later
	// transaction of the same run, component and task, it writes nothing and returns
	// nil. Later is what has a higher generation or, of the same generation, a higher
	// batch: after a rollback the numbers of batches come again. It is called in batch
	// order.
	Publish(ctx context.Context, id TransactionID, records [][]byte) error
}

// Stage gathers the records of a [StagedSink].
type Stage struct{ buf []byte }

// Add stages a copy of a record in the current batch.
func (s *Stage) Add(record []byte) {
	s.buf = append(binary.AppendUvarint(s.buf, uint64(len(record))), record...)
}

func (s *Stage) stage() *Stage { return s } //nolint:unused // of StagedSink, for types that embed Stage

func decodeRecords(b []byte) ([][]byte, error) {
	var records [][]byte
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, errHandle
		}
		records = append(records, b[size:size+int(n)])
		b = b[size+int(n):]
	}
	return records, nil
}

// AsStateful returns the five calls of a stateful bolt: the bolt itself, or what makes
// them for a [TwoPhaseSink] or a [StagedSink]. ok is false for other bolts.
func AsStateful(inst any, c *Context) (b StatefulBolt, ok bool) {
	switch inst := inst.(type) {
	case StatefulBolt:
		return inst, true
	case TwoPhaseSink:
		return &sink{Bolt: inst, ctx: c, phases: inst}, true
	case StagedSink:
		return &sink{Bolt: inst, ctx: c, phases: staged{inst}}, true
	}
	return nil, false
}

// phases are the parts in which the two kinds of sinks differ.
type phases interface {
	Finish(id TransactionID) (output any, err error)
	Prepare(ctx context.Context, id TransactionID, output any) (data []byte, err error)
	Publish(ctx context.Context, id TransactionID, data []byte) error
	Discard(ctx context.Context, void func(TransactionID) bool) error
}

// staged makes phases of a StagedSink: the output is its own handle.
type staged struct{ sink StagedSink }

func (s staged) Finish(TransactionID) (any, error) {
	st := s.sink.stage()
	if len(st.buf) == 0 {
		return nil, nil
	}
	out := st.buf
	st.buf = nil
	return out, nil
}

func (s staged) Prepare(_ context.Context, _ TransactionID, output any) ([]byte, error) {
	return output.([]byte), nil
}

func (s staged) Publish(ctx context.Context, id TransactionID, data []byte) error {
	records, err := decodeRecords(data)
	if err != nil {
		return Fatal(fmt.Errorf("transaction %s: %w", id, err))
	}
	return s.sink.Publish(ctx, id, records)
}

func (s staged) Discard(context.Context, func(TransactionID) bool) error {
	s.sink.stage().buf = nil
	return nil
}

// sink makes the five calls for a sink.
type sink struct {
	Bolt
	ctx    *Context
	phases phases

	mu       sync.Mutex    // FinishBatch and Commit are on two goroutines
	prepared []transaction // not yet published, in batch order
}

// pending is what FinishBatch hands to Commit.
type pending struct {
	id     TransactionID
	output any
}

func (s *sink) FinishBatch(n BatchID, _ *Collector) (any, error) {
	id := TransactionID{s.ctx.RunID, s.ctx.Component, s.ctx.TaskIndex, s.ctx.Generation, n}
	out, err := s.phases.Finish(id)
	if out == nil || err != nil {
		return nil, err
	}
	return pending{id, out}, nil
}

func (s *sink) Commit(ctx context.Context, _ BatchID, state any) ([]byte, error) {
	p, ok := state.(pending)
	if !ok {
		return nil, nil
	}
	data, err := s.phases.Prepare(ctx, p.id, p.output)
	if err != nil {
		return nil, fmt.Errorf("prepare transaction %s: %w", p.id, err)
	}
	t := transaction{p.id, data}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepared = append(s.prepared, t)
	return t.encode(), nil
}

func (s *sink) AckCommit(ctx context.Context, n, _ BatchID) error {
	for {
		s.mu.Lock()
		if len(s.prepared) == 0 || s.prepared[0].id.Batch > n {
			s.mu.Unlock()
			return nil
		}
		t := s.prepared[0]
		s.mu.Unlock()
		if err := s.phases.Publish(ctx, t.id, t.data); err != nil {
			return fmt.Errorf("publish transaction %s: %w", t.id, err)
		}
		s.mu.Lock()
		s.prepared = s.prepared[1:]
		s.mu.Unlock()
	}
}

// InitState discards what is not committed. What is, is published by the
// acknowledgement that follows every start.
func (s *sink) InitState(handles []Handle) error {
	s.prepared = nil
	listed := map[TransactionID]bool{}
	for _, h := range handles {
		if len(h.Data) == 0 {
			continue // a batch without output
		}
		t, err := decodeTransaction(h.Data)
		if err != nil {
			return Fatal(fmt.Errorf("batch %d: %w", h.Batch, err))
		}
		listed[t.id] = true
		s.prepared = append(s.prepared, t)
	}
	void := func(id TransactionID) bool {
		return id.Run == s.ctx.RunID && id.Component == s.ctx.Component &&
			id.Task%s.ctx.TaskCount == s.ctx.TaskIndex && id.Generation < s.ctx.Generation && !listed[id]
	}
	if err := s.phases.Discard(s.ctx.Context(), void); err != nil {
		return fmt.Errorf("discard what was not committed: %w", err)
	}
	return nil
}

func (s *sink) Rollback(handles []Handle) error { return s.InitState(handles) }

// Rescale gives each transaction to the task that its id names, modulo their number:
// the one that discards what is void of that task, and that will make its next ones.
func (s *sink) Rescale(old [][]Handle, task, tasks int) ([]Handle, error) {
	var mine []Handle
	for i, handles := range old {
		for _, h := range handles {
			owner := i
			if len(h.Data) > 0 {
				t, err := decodeTransaction(h.Data)
				if err != nil {
					return nil, Fatal(fmt.Errorf("batch %d: %w", h.Batch, err))
				}
				owner = t.id.Task
			}
			if owner%tasks == task {
				mine = append(mine, h)
			}
		}
	}
	slices.SortStableFunc(mine, func(a, b Handle) int { return cmp.Compare(a.Batch, b.Batch) })
	return mine, nil
}
