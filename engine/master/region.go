package master

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/txn"
)

// step feeds an event to a region's Coordinator and carries out what it says.
func (m *Master) step(r *region, ev checkpoint.Event) {
	if f, ok := ev.(checkpoint.TaskFailed); ok {
		ev = m.taskFailed(r, f)
	}
	r.record.happened(m.now(), ev)
	actions := r.coord.Step(m.now(), ev)
	r.record.looks(r.coord.Look())
	for _, a := range actions {
		r.record.did(m.now(), a)
		m.do(r, a)
	}
}

// taskFailed tells failures apart that no restart will cure: while a checkpoint is
// being restored, a damaged object, or what the component itself calls fatal.
func (m *Master) taskFailed(r *region, f checkpoint.TaskFailed) checkpoint.Event {
	var p *task.PanicError
	if errors.As(f.Err, &p) {
		m.cfg.Logger.Error("panic in user code", "where", p.Where, "panic", p.Value, "stack", string(p.Stack))
	}
	if !r.started && (checkpoint.Hopeless(f.Err) || txn.IsFatal(f.Err)) {
		return checkpoint.RestoreFailed{Generation: f.Generation, Err: f.Err}
	}
	m.cfg.Logger.Error("task failed", "region", r.Name, "generation", f.Generation, "err", f.Err)
	t := m.cfg.Plan.Task(int(f.Task))
	m.reported(ReportedError{time.Now(), m.cfg.Plan.Components[t.Component].ID, t.Index, f.Err})
	f.Learned = r.suspects.Failed(f.Err, func(component string) int {
		return m.cfg.Env.Config(component).Int("topology.poison.max.attempts")
	})
	return f
}

func (m *Master) do(r *region, a checkpoint.Action) {
	log := m.cfg.Logger.With("region", r.Name)
	switch a := a.(type) {
	case checkpoint.StopTasks:
		if g := r.gen.Load(); g != nil && g.number == a.Generation {
			g.Stop()
		}
	case checkpoint.RaiseGeneration:
		r.raising = true
		m.moveHead(checkpoint.RaiseRequested{Region: r.Name, To: a.To, Generation: a.Generation, Settled: a.Settled, Start: m.cfg.Start.Once})
	case checkpoint.Restore:
		m.restore(r, a)
	case checkpoint.StartTasks:
		r.started = true
		m.spouts(r, task.Control{Activity: m.activity, Hold: a.Hold}) // activity outlives rollbacks
		r.gen.Load().Start()
		m.saveAgain(r)
	case checkpoint.InjectBarrier:
		r.injected = a.Batch
		m.spouts(r, task.Control{Kind: a.Kind, Batch: a.Batch, Pause: a.Pause, Resume: !a.Pause, At: m.now()})
	case checkpoint.Resume:
		m.spouts(r, task.Control{Resume: true})
	case checkpoint.StoreManifest:
		m.storeManifest(r, a)
	case checkpoint.MoveHead:
		m.moveHead(checkpoint.AdvanceRequested{Region: r.Name, Generation: a.Generation, Ref: a.Ref, Settled: a.Settled})
	case checkpoint.AckCommit:
		for _, id := range a.Tasks {
			r.gen.Load().AckCommit(id, a.Batch, a.Oldest, a.Last)
		}
	case checkpoint.GiveUp:
		log.Warn("checkpoint given up, a later one will cover it", "batch", a.Batch, "late", m.names(a.Late), "err", a.Err)
	case checkpoint.Finish:
		r.over = true
		m.result.Outcome = max(m.result.Outcome, a.Outcome)
		m.moveHead(checkpoint.SettleRequested{Region: r.Name, Generation: a.Generation, Settled: a.Settled})
	case checkpoint.FailRegion:
		r.over = true
		m.err = fmt.Errorf("topology %q, region %q: %w", m.cfg.Plan.Topology, r.Name, a.Err)
	case checkpoint.Note:
		log.Debug(a.Text)
	case checkpoint.WakeAt:
		r.wakeAt = max(a.At, 1)
	}
}

func (m *Master) spouts(r *region, c task.Control) {
	for _, id := range r.Tasks {
		if len(m.cfg.Plan.Component(id).Inputs) == 0 {
			r.gen.Load().Spout(checkpoint.TaskID(id), c)
		}
	}
}

func (m *Master) names(ids []checkpoint.TaskID) []string {
	var names []string
	for _, id := range ids {
		t := m.cfg.Plan.Task(int(id))
		names = append(names, fmt.Sprintf("%s[%d]", m.cfg.Plan.Components[t.Component].ID, t.Index))
	}
	return names
}

// built is what restoring came to, before the tasks are made.
type built struct {
	restore checkpoint.Restore
	tasks   *task.Restore
	err     error
	hung    bool
}

// restore waits for the old tasks to end, reads the checkpoint, and has new tasks
// made from it.
func (m *Master) restore(r *region, a checkpoint.Restore) {
	old := r.gen.Load()
	if old == nil && r.first == 0 {
		r.first = a.Generation
	}
	r.started, r.raising, r.injected = false, false, 0
	if a.From != nil {
		r.injected = a.From.Batch
	}
	if old != nil {
		m.result.Restarts++
		r.record.restarted()
	}
	f := m.fitting(r, a.From)
	m.io.Go(func() {
		b := &built{restore: a}
		if old != nil {
			old.Stop()
			if b.err = m.awaitEnd(old); b.err != nil {
				b.hung = true
			}
		}
		if b.err == nil {
			b.tasks, b.err = m.readCheckpoint(a.From, f)
		}
		m.inbox.Put(message{region: r, built: b})
	})
}

// readCheckpoint reads what the head names, waiting for a store that does not answer.
func (m *Master) readCheckpoint(from *checkpoint.Ref, f fitting) (*task.Restore, error) {
	if from == nil {
		return &task.Restore{}, nil
	}
	for {
		mf, err := checkpoint.ReadManifest(m.ctx, m.cfg.Store, *from)
		if err == nil {
			return m.fit(mf, f)
		}
		if checkpoint.Hopeless(err) || m.ctx.Err() != nil {
			return nil, fmt.Errorf("restore checkpoint %s: %w", from, err)
		}
		m.cfg.Logger.Warn("cannot read the checkpoint, will try again", "checkpoint", from.String(), "err", err)
		wait(m.ctx, m.cfg.Timing.StoreRetry)
	}
}

func (m *Master) builtGeneration(r *region, b *built) {
	switch {
	case b.hung:
		m.err = b.err
	case b.err != nil:
		m.step(r, checkpoint.RestoreFailed{Generation: b.restore.Generation, Err: b.err})
	default:
		env := *r.env
		env.Suspects = r.suspects.Suspects()
		n := b.restore.Generation
		r.gen.Store(&generation{n, m.cfg.Crew.Make(m.ctx, &env, r.Region, n, b.tasks)})
	}
}

// storeManifest builds the manifest of a batch and stores it. Everything it names is
// already durable (invariant I6).
func (m *Master) storeManifest(r *region, a checkpoint.StoreManifest) {
	mf := *r.manifest
	mf.Generation, mf.Batch, mf.Ended, mf.Tasks = a.Generation, a.Batch, a.Ended, a.Tasks
	mf.UnixMilli = time.Now().UnixMilli()
	if b := r.record.batches[a.Batch]; b != nil {
		mf.TookMicros = checkpoint.Micros(m.now() - b.injected)
	}
	name := checkpoint.ManifestName(a.Generation, a.Batch, r.Name, Unique())
	m.io.Go(func() {
		data, err := checkpoint.EncodeManifest(&mf)
		crc := checkpoint.CRC(data)
		if err == nil {
			err = m.cfg.Store.Put(m.ctx, name, bytes.NewReader(data), int64(len(data)), crc)
		}
		if err != nil {
			m.cfg.Logger.Warn("cannot store the manifest, will try again", "batch", a.Batch, "err", err)
			r.env.Post(checkpoint.ManifestFailed{Generation: a.Generation, Batch: a.Batch, Err: err})
			return
		}
		r.env.Post(checkpoint.ManifestStored{Generation: a.Generation, Ref: checkpoint.Ref{
			Generation: a.Generation,
			Batch:      a.Batch,
			Manifest:   name,
			Size:       int64(len(data)),
			CRC32C:     crc,
			UnixMilli:  mf.UnixMilli,
			Ended:      a.Ended,
		}})
	})
}

// wait waits for a time or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// retainedOf returns the checkpoints that the head keeps.
func retainedOf(h *checkpoint.Head) []checkpoint.Ref {
	var refs []checkpoint.Ref
	for region := range h.Regions {
		refs = append(refs, h.Kept(region)...)
	}
	return refs
}
