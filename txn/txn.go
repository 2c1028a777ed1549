// Package txn is the transactional SDK: the interfaces that spouts and bolts
// implement, the collector they emit through, and the state the engine keeps for
// them.
//
// All calls to one instance come from its task's goroutine, except Commit,
// AckCommit and Publish, which come from the task's committer goroutine, one at a
// time and in batch order, while the task goes on with later batches.
package txn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/isobar-io/isobar/tuple"
)

// BatchID numbers batches; see [tuple.BatchID].
type BatchID = tuple.BatchID

// Generation numbers incarnations of a run; see [tuple.Generation].
type Generation = tuple.Generation

// Declarer is implemented by every component that emits: it names the fields of
// its output streams. It is called while the topology is built.
type Declarer interface {
	DeclareOutputFields(d *OutputDeclarer)
}

// Opener is implemented by spouts and plain or stateful bolts that want to be
// called once before their first tuple.
type Opener interface {
	Open(ctx *Context) error
}

// Closer is implemented by components that hold resources. Close is called once,
// after the last call of any other method, also when the task has failed.
type Closer interface {
	Close() error
}

// Configurer is implemented by components that want configuration of their own,
// whatever the topology's is. What the topology's builder says of the component wins.
type Configurer interface {
	ComponentConfiguration() map[string]any
}

// Bolt processes tuples one at a time. An error or a panic fails the region, which
// rolls back to its last checkpoint and goes on from there.
//
// The tuple and its bytes are valid until Execute returns. Tuples emitted during
// Execute belong to the batch of t.
type Bolt interface {
	Execute(t *tuple.Tuple, out *Collector) error
}

// BatchExecutor is implemented by bolts that take a whole frame of tuples at once,
// instead of Execute for each, because that is faster. The frame is valid until
// ExecuteBatch returns. It is not used for keyed bolts.
type BatchExecutor interface {
	ExecuteBatch(f *tuple.Frame, out *Collector) error
}

// Handle is what Commit returned for one batch.
type Handle struct {
	Batch      BatchID    `json:"batch"`
	Generation Generation `json:"generation"`
	Data       []byte     `json:"data"`
}

// StatefulBolt is a bolt that takes part in checkpoints with a state of its own
// making: JStorm's five calls. Use [KeyedBolt] where the state is kept by key; the
// engine makes the calls for it.
type StatefulBolt interface {
	Bolt

	// InitState is called once on a new instance, before its first tuple. handles
	// are those of all batches of the restored checkpoint whose AckCommit has not
	// been confirmed, in batch order, the newest last; none on a fresh start. What
	// they name is committed: it must be published, again if need be, here or in the
	// AckCommit of the restored batch, which follows every start. Anything that an
	// older generation prepared and that is not named must be discarded.
	InitState(handles []Handle) error

	// FinishBatch ends batch n on the task's goroutine and returns what Commit will
	// need, unaffected by later tuples. It should be cheap. It may emit; those
	// tuples belong to n.
	FinishBatch(n BatchID, out *Collector) (state any, err error)

	// Commit makes the state of batch n durable, but publishes nothing, and returns
	// the handle that stands for it: the state itself if it is small, else a name
	// for where it was put. It may be slow. An error is retried with back-off until
	// the checkpoint is given up; an error made by [Fatal] rolls back at once.
	Commit(ctx context.Context, n BatchID, state any) (handle []byte, err error)

	// Rollback takes a live instance back to a checkpoint: as InitState, for an
	// instance that has already processed tuples which are now void. The instance's
	// Context is that of the new generation from here on.
	Rollback(handles []Handle) error

	// AckCommit tells that all batches up to n are committed for good and may be
	// published. It may be repeated and must be idempotent. Outside data may be
	// deleted only below oldest, the oldest batch that can still be gone back to.
	AckCommit(ctx context.Context, n, oldest BatchID) error
}

// KeyedBolt is a bolt whose state is kept by key in [State]. The key is implicit:
// it is the grouping fields of the current tuple, unless the bolt is a [Keyer].
type KeyedBolt interface {
	Bolt

	// Open is called once on a new instance before its first tuple, to register the
	// states it keeps. The state of earlier batches is already there.
	Open(ctx *Context, s *State) error
}

// Keyer is implemented by keyed bolts that take their key from fields of the tuple
// whatever the grouping is. A tuple whose key belongs to another task is an error.
type Keyer interface {
	KeyFields() []string
}

// ChangeFinisher is implemented by keyed bolts that emit at the end of a batch.
// changed iterates over the keys whose state was written in batch n; during each
// step that key is the current one of the state.
type ChangeFinisher interface {
	FinishBatch(n BatchID, changed *Changed, out *Collector) error
}

// Publisher is implemented by keyed bolts that show their state to the outside:
// sinks. Publish is called when batch n has been committed for good, with the
// state exactly as of n. It may be called again for the same n, also after a
// restart, and must be idempotent. An error is retried, with the newest batch that
// is committed by then. A sink that need not show every batch returns ErrPostponed
// until it is time; last is true for the last batch before an orderly stop, which
// must be shown.
type Publisher interface {
	Publish(ctx context.Context, n BatchID, view View, last bool) error
}

// PartitionID names a part of a spout's input that has a position of its own, in UTF-8.
type PartitionID string

// Position is where a partition was read up to. Its bytes are the spout's own; nil
// says that nothing is left of the partition and its position can be forgotten.
type Position struct {
	Partition PartitionID `json:"partition"`
	Data      []byte      `json:"data"`
}

// Status is what NextTuple has to say about the input.
type Status int

// The answers of NextTuple.
const (
	// Emitted: there may be more at once.
	Emitted Status = iota
	// Idle: nothing now. NextTuple is called again after Context.Wake or a pause.
	Idle
	// Finished: all input of all partitions has been emitted, for good.
	Finished
)

// Spout reads input that can be read again from a position.
type Spout interface {
	// Partitions lists what there is to read. Every task asks, now and then again;
	// a partition belongs to the task that [PartitionTask] names.
	Partitions(ctx context.Context) ([]PartitionID, error)

	// Seek says that p belongs to this task and is to be read from pos on; nil is
	// its beginning. It is called for every partition with a position in the restored
	// checkpoint, listed by Partitions or not, and for every newly listed one. A
	// position that no longer fits the input is an error.
	Seek(p PartitionID, pos []byte) error

	// NextTuple emits a few tuples and returns; it does not wait for input.
	NextTuple(out *Collector) (Status, error)

	// FinishBatch returns the positions that moved since the last call, of partitions
	// that Seek was called for. It is called between two calls of NextTuple.
	FinishBatch(n BatchID) ([]Position, error)
}

// Activator is implemented by spouts that want to know when an operator stops and
// starts their input: while a topology is inactive NextTuple is not called, bolts go on
// with what they have, and checkpoints are taken.
type Activator interface {
	Activate() error
	Deactivate() error
}

// CommitListener is implemented by spouts that want to know when batches are
// committed for good, to release or trim their source.
type CommitListener interface {
	AckCommit(ctx context.Context, n, oldest BatchID) error
}

// InputEnder is implemented by bolts that hold tuples back until more come: when all
// input has ended for good, InputEnded is called before the last batch is finished,
// to emit what is left. It is not called when a topology is stopped.
type InputEnder interface {
	InputEnded(out *Collector) error
}

// PartitionTask returns the index of the task, of tasks many, that reads p.
func PartitionTask(p PartitionID, tasks int) int {
	return tuple.TaskOfGroup(tuple.KeyGroup(tuple.HashBytes(string(p), 0), 1<<15), 1<<15, tasks)
}

// ErrPostponed is returned by Publish when there is nothing wrong, but it should be
// asked again later.
var ErrPostponed = errors.New("postponed")

// Fatal marks an error of Commit, AckCommit or Publish as one that trying again
// will not cure: the region rolls back at once. Before the first tuple, as an error
// of Open, Seek or Partitions, it fails the region for good.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{err}
}

// IsFatal reports whether err was marked by [Fatal].
func IsFatal(err error) bool {
	var f *fatalError
	return errors.As(err, &f)
}

type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// OutputDeclarer collects the output streams of a component.
type OutputDeclarer struct {
	streams []*tuple.Stream
	errs    []error
}

// Declare names the fields of the default stream.
func (d *OutputDeclarer) Declare(fields ...string) { d.DeclareStream(tuple.DefaultStream, fields...) }

// DeclareStream names the fields of a further stream.
func (d *OutputDeclarer) DeclareStream(id string, fields ...string) {
	d.add(&tuple.Stream{ID: id, Fields: fields})
}

// DeclareDirect names the fields of a direct stream, whose receiving task is named
// with every tuple.
func (d *OutputDeclarer) DeclareDirect(id string, fields ...string) {
	d.add(&tuple.Stream{ID: id, Fields: fields, Direct: true})
}

// DeclareTyped declares a stream whose fields have kinds: emitting another kind is an
// error at once.
func (d *OutputDeclarer) DeclareTyped(id string, fields ...Field) {
	s := &tuple.Stream{ID: id, Kinds: []tuple.Kind{}}
	for _, f := range fields {
		s.Fields = append(s.Fields, f.Name)
		s.Kinds = append(s.Kinds, f.Kind)
	}
	d.add(s)
}

// Field is a field with a kind; tuple.KindAny stands for every kind.
type Field struct {
	Name string
	Kind tuple.Kind
}

func (d *OutputDeclarer) add(s *tuple.Stream) {
	if strings.HasPrefix(s.ID, "__") {
		d.errs = append(d.errs, fmt.Errorf("stream %q: ids that begin with __ are reserved", s.ID))
	}
	for _, other := range d.streams {
		if other.ID == s.ID {
			d.errs = append(d.errs, fmt.Errorf("stream %q is declared twice", s.ID))
			return
		}
	}
	seen := map[string]bool{}
	for _, f := range s.Fields {
		if f == "" || seen[f] {
			d.errs = append(d.errs, fmt.Errorf("stream %q declares field %q twice or without a name", s.ID, f))
		}
		seen[f] = true
	}
	d.streams = append(d.streams, s)
}

// Streams returns what was declared and what was wrong with it.
func (d *OutputDeclarer) Streams() ([]*tuple.Stream, []error) { return d.streams, d.errs }
