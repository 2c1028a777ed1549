package master

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/tuple"
)

// RunLocal runs a topology without barriers (transaction.topology: false): at most
// once. Nothing is kept, so the first failure ends the run.
func RunLocal(ctx context.Context, cfg Config) (Result, error) {
	m := &Master{cfg: cfg, inbox: link.NewMailbox[message](), began: time.Now()}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer m.cancel()
	defer cfg.Control.end()
	m.sweep = newSweeper(nil, cfg.Plan, cfg.Logger, 0, cfg.Env.Hook)
	whole := plan.Region{Name: "all"}
	for _, t := range cfg.Plan.Tasks {
		whole.Tasks = append(whole.Tasks, t.ID)
	}
	r := &region{Region: whole, record: newRecord()}
	m.regions = []*region{r}
	env := cfg.Env
	env.Now = m.now
	env.RunID = Unique()
	env.Reported = m.report
	env.Suspects = &poison.Suspects{}
	env.Post = func(ev checkpoint.Event) { m.inbox.Put(message{event: ev}) }
	r.gen.Store(&generation{1, cfg.Crew.Make(m.ctx, &env, whole, 1, &task.Restore{})})
	m.inspect()
	m.leadLocal(ctx, r)
	m.end()
	return m.result, m.err
}

// localState is what RunLocal waits for: tasks ready, spouts finished, tasks done.
type localState struct {
	ready, spouts, finished, done int
	ending                        bool
}

func (m *Master) leadLocal(ctx context.Context, r *region) {
	defer func() { m.stopTasks(); m.cancel() }()
	progress := time.NewTicker(time.Second)
	defer progress.Stop()
	var s localState
	for _, id := range r.Tasks {
		if len(m.cfg.Plan.Component(id).Inputs) == 0 {
			s.spouts++
		}
	}
	stop := ctx.Done()
	for !r.over && m.err == nil {
		select {
		case <-m.inbox.Signal():
			for _, msg := range m.inbox.Take() {
				m.takeLocal(r, &s, msg.event)
			}
		case <-m.cfg.Control.mail.Signal():
			for _, c := range m.cfg.Control.mail.Take() {
				if c.reply != nil {
					c.reply <- answer{err: errors.New("a run without checkpoints (transaction.topology: false) has none")}
				} else if c.verb != checkpointNow {
					m.obey(c)
				}
			}
		case <-stop:
			stop = nil
			m.result.Outcome = checkpoint.Stopped
			m.endLocal(r, &s, tuple.MarkLastBarrier)
		case <-progress.C:
			m.progress(false)
		}
	}
}

func (m *Master) endLocal(r *region, s *localState, kind tuple.MarkKind) {
	if !s.ending {
		s.ending = true
		m.spouts(r, task.Control{Kind: kind, Batch: 1, Pause: true, At: m.now()})
	}
}

func (m *Master) takeLocal(r *region, s *localState, ev checkpoint.Event) {
	switch ev := ev.(type) {
	case checkpoint.TaskReady:
		if s.ready++; s.ready == len(r.Tasks) {
			r.started = true
			m.spouts(r, task.Control{Activity: m.activity})
			r.gen.Load().Start()
			r.record.looks(checkpoint.Look{Phase: "running", Running: true, Generation: 1})
		}
	case checkpoint.SpoutFinished:
		if s.finished++; s.finished == s.spouts {
			m.endLocal(r, s, tuple.MarkEnd)
		}
	case checkpoint.AckConfirmed:
		if s.done++; s.done == len(r.Tasks) {
			r.over = true
			r.record.looks(checkpoint.Look{Phase: "over", Over: true, Generation: 1})
		}
	case checkpoint.TaskFailed:
		r.record.did(m.now(), checkpoint.FailRegion{Err: ev.Err})
		m.err = fmt.Errorf("topology %q: %w; it runs at most once, so nothing of it can be made up for", m.cfg.Plan.Topology, ev.Err)
	default: // there are no checkpoints to speak of
	}
}
