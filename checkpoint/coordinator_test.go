package checkpoint

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

// world is everything around a Coordinator: tasks that report and confirm, a store
// and a head. Each answers in order, and when it likes. It checks every action.
type world struct {
	t   *rapid.T
	cfg Config
	c   *Coordinator
	now time.Duration

	answers map[string][]func() (Event, bool) // by who answers; false: it got lost
	wake    time.Duration

	head    *Ref // the truth
	headGen Generation

	generation Generation
	started    bool // StartTasks of the generation
	closed     BatchID
	acked      BatchID
	reported   map[BatchID]map[TaskID]bool
	givenUp    map[BatchID]bool
	confirmed  map[TaskID]bool // the last AckCommit
	acks       map[TaskID]BatchID
	storing    BatchID // a manifest or head move under way
	over       bool
}

func newWorld(t *rapid.T) *world {
	cfg := testRegion()
	cfg.MaxPending = rapid.IntRange(0, 3).Draw(t, "max pending")
	return &world{t: t, cfg: cfg, c: NewCoordinator(cfg), answers: map[string][]func() (Event, bool){}}
}

func (w *world) step(ev Event) {
	for _, a := range w.c.Step(w.now, ev) {
		if w.over {
			w.t.Fatalf("%#v after the region was over", a)
		}
		w.check(a)
	}
}

func (w *world) answer(who string, f func() (Event, bool)) {
	w.answers[who] = append(w.answers[who], f)
}

// ok answers with an event for certain.
func (w *world) ok(who string, ev Event) {
	w.answer(who, func() (Event, bool) { return ev, true })
}

func taskName(id TaskID) string { return "task " + string(rune('0'+id)) }

func (w *world) check(a Action) {
	switch a := a.(type) {
	case RaiseGeneration:
		w.want(a.Generation == w.generation && a.Settled == w.settled(), a)
		w.started = false
		w.answer("head", func() (Event, bool) {
			w.headGen++
			var oldest BatchID
			if w.head != nil {
				oldest = w.head.Batch
			}
			return GenerationRaised{w.headGen, w.head, oldest}, true
		})
	case Restore:
		w.generation, w.storing = a.Generation, 0
		w.closed, w.acked = 0, 0
		if a.Generation != w.headGen || a.From != w.head {
			w.t.Fatalf("%+v, the head says %d and %v", a, w.headGen, w.head)
		}
		if a.From != nil {
			w.closed = a.From.Batch
		}
		w.reported, w.givenUp, w.confirmed = map[BatchID]map[TaskID]bool{}, map[BatchID]bool{}, map[TaskID]bool{}
		w.acks = map[TaskID]BatchID{}
		for _, task := range w.cfg.Tasks {
			w.ok(taskName(task.ID), TaskReady{a.Generation, task.ID})
		}
	case StartTasks:
		w.want(a.Generation == w.generation && a.Next == w.closed+1 && !w.started, a)
		w.started = true
	case InjectBarrier:
		w.inject(a)
	case StoreManifest:
		w.want(a.Generation == w.generation && w.storing == 0 && len(a.Tasks) == 3 && len(w.reported[a.Batch]) == 3 && !w.givenUp[a.Batch], a)
		w.storing = a.Batch
		w.answer("store", w.storeManifest(a))
	case MoveHead:
		w.want(a.Generation == w.generation && w.storing == a.Ref.Batch && a.Settled == w.settled(), a)
		w.answer("head", w.moveHead(a))
	case AckCommit: // invariant I1
		w.want(w.started && a.Generation == w.generation && w.head != nil && w.head.Batch == a.Batch && a.Batch >= w.acked && len(a.Tasks) > 0, a)
		w.acked = a.Batch
		for _, id := range a.Tasks {
			w.answer(taskName(id), func() (Event, bool) {
				if rapid.IntRange(0, 4).Draw(w.t, "ack lost") == 2 {
					return nil, false
				}
				if a.Generation == w.generation {
					w.confirmed[id] = w.confirmed[id] || a.Last
					w.acks[id] = max(w.acks[id], a.Batch)
				}
				return AckConfirmed{a.Generation, id, a.Batch, a.Last}, true
			})
		}
	case GiveUp:
		w.want(a.Batch != w.storing && len(a.Late) > 0 && len(w.reported[a.Batch])+len(a.Late) == 3, a)
		w.givenUp[a.Batch] = true
	case WakeAt:
		w.want(a.At > w.now, a)
		w.wake = a.At
	case StopTasks:
		w.want(a.Generation == w.generation, a)
		w.started = false
	case Resume:
		w.want(w.started && a.Generation == w.generation, a)
	case Finish:
		w.want(w.started && (w.head == nil || len(w.confirmed) == 3 && a.Settled == w.head.Batch), a)
		w.want(a.Generation == w.generation && a.Settled == w.settled(), a)
		w.over = true
	case FailRegion:
		w.t.Fatalf("unexpected %+v", a)
	case Note:
	}
}

// settled returns what all tasks have confirmed in this generation.
func (w *world) settled() BatchID { return min(w.acks[0], w.acks[1], w.acks[3]) }

func (w *world) want(ok bool, a Action) {
	if !ok {
		w.t.Fatalf("at %v unexpected %#v: generation %d, closed %d, storing %d, acked %d (%v), head %v, reported %v",
			w.now, a, w.generation, w.closed, w.storing, w.acked, w.acks, w.head, w.reported)
	}
}

func (w *world) inject(a InjectBarrier) {
	w.want(w.started && a.Generation == w.generation && a.Batch == w.closed+1, a)
	w.want(a.Pause || a.Kind == tuple.MarkBarrier, a)
	w.closed = a.Batch
	reported := map[TaskID]bool{}
	w.reported[a.Batch] = reported
	for _, task := range w.cfg.Tasks {
		if !task.Reports {
			continue
		}
		w.answer(taskName(task.ID), func() (Event, bool) {
			if rapid.IntRange(0, 15).Draw(w.t, "report lost") == 7 {
				return nil, false
			}
			reported[task.ID] = true
			return SnapshotReported{a.Generation, task.ID, a.Batch, TaskSnapshot{}}, true
		})
	}
	if w.cfg.MaxPending > 0 {
		pending := 0
		for n := range w.reported {
			if !w.givenUp[n] && (w.head == nil || n > w.head.Batch) {
				pending++
			}
		}
		w.want(pending <= w.cfg.MaxPending && (pending < w.cfg.MaxPending || a.Pause), a)
	}
}

func (w *world) storeManifest(a StoreManifest) func() (Event, bool) {
	return func() (Event, bool) {
		if rapid.IntRange(0, 4).Draw(w.t, "store") == 2 {
			if a.Generation == w.generation {
				w.storing = 0
			}
			return ManifestFailed{a.Generation, a.Batch, errors.New("no")}, true
		}
		return ManifestStored{a.Generation, Ref{Generation: a.Generation, Batch: a.Batch}}, true
	}
}

// moveHead is carried out although the region may have failed meanwhile, but not
// after a newer generation was raised.
func (w *world) moveHead(a MoveHead) func() (Event, bool) {
	return func() (Event, bool) {
		if a.Generation != w.headGen || w.head != nil && a.Ref.Batch <= w.head.Batch {
			w.t.Fatalf("%+v when the head has %v of generation %d", a, w.head, w.headGen)
		}
		w.head = &a.Ref
		if a.Generation == w.generation {
			w.storing = 0
		}
		return HeadMoved{a.Generation, a.Ref.Batch, a.Ref.Batch}, true
	}
}

// deliver lets one of those that have something to say say it.
func (w *world) deliver() bool {
	who := w.speakers()
	if len(who) == 0 {
		return false
	}
	name := rapid.SampledFrom(who).Draw(w.t, "who")
	f := w.answers[name][0]
	w.answers[name] = w.answers[name][1:]
	if ev, ok := f(); ok {
		w.step(ev)
	}
	return true
}

func (w *world) speakers() []string {
	var who []string
	for name, q := range w.answers {
		if len(q) > 0 {
			who = append(who, name)
		}
	}
	slices.Sort(who)
	return who
}

// disturb makes something happen that nobody asked for.
func (w *world) disturb() {
	task := TaskID(rapid.IntRange(0, 3).Draw(w.t, "task"))
	switch rapid.IntRange(0, 9).Draw(w.t, "disturbance") {
	case 0:
		w.step(TaskFailed{Generation: w.generation, Task: task, Err: errors.New("no")})
	case 1:
		w.step(SnapshotReported{w.generation - 1, task, w.closed + 1, TaskSnapshot{}})
		w.step(TaskFailed{Generation: w.generation - 1, Task: task, Err: errors.New("old")})
	case 2:
		w.step(HeadMoved{w.generation - 1, w.closed, 0})
		w.step(AckConfirmed{w.generation - 1, task, w.closed, true})
	case 3:
		w.step(CheckpointRequested{})
	case 4:
		if len(w.answers["head"]) > 0 {
			w.step(HeadFailed{w.generation, errors.New("not yet")})
		}
	case 5, 6, 7:
		w.step(InputChanged{w.generation, 0, w.closed})
	case 8:
		if w.started {
			w.step(SpoutFinished{w.generation, task % 2})
		}
	case 9:
		w.step(AckConfirmed{w.generation, task, 0, true})
	}
}

// Whatever happens, and in whatever order: nothing is acknowledged before the head
// has moved, batches are committed in order and one at a time, a restart begins at
// what the head names, nothing follows the end, and a stop comes to one.
func TestCoordinatorKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.step(Started{})
		for range 150 {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				w.disturb()
			case 1:
				w.now += time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond
				w.step(TimePassed{})
			case 2:
				w.now = max(w.now, w.wake)
				w.step(TimePassed{})
			default:
				w.deliver()
			}
		}
		w.step(StopRequested{})
		for i := 0; !w.over; i++ {
			if i > 5000 {
				t.Fatalf("a stop does not end the region, it is %s", w.c.phase)
			}
			if !w.deliver() {
				w.now = max(w.now, w.wake)
				w.step(TimePassed{})
			}
		}
		for range 20 {
			w.deliver()
			w.disturb()
		}
	})
}
