package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/task"
)

// Control steers a running topology from outside.
type Control struct {
	mail  *link.Mailbox[command]
	ended chan struct{} // closed by end
	once  sync.Once
}

// command is what an operator wants: of activate, deactivate and checkpoint nothing
// comes back, the others answer.
type command struct {
	verb  verb
	name  string // of a savepoint, or of the checkpoint to go back to
	drop  bool   // with rollback: what is not published, too
	reply chan<- answer
	found *found // with goBack
}

// found is the checkpoint that a rollback goes to, once its manifest has been read.
type found struct {
	region   string
	ref      checkpoint.Ref
	manifest *checkpoint.Manifest
	err      error
}

type verb uint8

const (
	activate verb = iota
	deactivate
	checkpointNow
	abandon
	savepoint
	rollback
	goBack // the second half of rollback, from the master itself
	showHead
)

var errEnded = errors.New("the run has ended")

// answer is what has become of a command.
type answer struct {
	refs []checkpoint.Ref
	head *checkpoint.Head
	err  error
}

// NewControl returns a Control for one run.
func NewControl() *Control {
	return &Control{mail: link.NewMailbox[command](), ended: make(chan struct{})}
}

// Deactivate stops the input: spouts emit nothing more until Activate. What is under
// way is processed and committed.
func (c *Control) Deactivate() { c.mail.Put(command{verb: deactivate}) }

// Activate lets spouts emit again.
func (c *Control) Activate() { c.mail.Put(command{verb: activate}) }

// Checkpoint asks for a checkpoint now, whatever the interval is.
func (c *Control) Checkpoint() { c.mail.Put(command{verb: checkpointNow}) }

// Abandon ends the run at once, with an error that wraps ErrAbandoned: for a topology
// master whose tasks cannot be had. It is as if its process had died.
func (c *Control) Abandon() { c.mail.Put(command{verb: abandon}) }

// ErrAbandoned is wrapped by the error of a run that was abandoned.
var ErrAbandoned = errors.New("abandoned")

// Savepoint takes a checkpoint of every region and pins it under a name, which may be
// "", until it is unpinned: of a region that has finished, its last one. It returns the
// checkpoints, once they are committed.
func (c *Control) Savepoint(ctx context.Context, name string) ([]checkpoint.Ref, error) {
	a := c.ask(ctx, command{verb: savepoint, name: name})
	return a.refs, a.err
}

// Rollback takes the region of a kept checkpoint, GENERATION.BATCH, back to it. It
// returns once the head says so. What was published after that checkpoint cannot be
// taken back, and is published again by the same input. A checkpoint that was undone
// before its transactions were known to be published is refused, unless dropUnpublished
// accepts that they are lost.
func (c *Control) Rollback(ctx context.Context, name string, dropUnpublished bool) error {
	return c.ask(ctx, command{verb: rollback, name: name, drop: dropUnpublished}).err
}

// Head returns the head as the run knows it.
func (c *Control) Head(ctx context.Context) (*checkpoint.Head, error) {
	a := c.ask(ctx, command{verb: showHead})
	return a.head, a.err
}

func (c *Control) ask(ctx context.Context, cmd command) answer {
	reply := make(chan answer, 1)
	cmd.reply = reply
	c.mail.Put(cmd)
	select {
	case a := <-reply:
		return a
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	case <-c.ended:
	}
	select {
	case a := <-reply: // it was there before the end
		return a
	default:
		return answer{err: errEnded}
	}
}

// end has all who ask from now on told that the run has ended.
func (c *Control) end() { c.once.Do(func() { close(c.ended) }) }

// obey does what the operator says.
func (m *Master) obey(c command) {
	switch c.verb {
	case activate, deactivate:
		m.activity = task.Active
		if c.verb == deactivate {
			m.activity = task.Inactive
		}
		for _, r := range m.regions {
			if r.started {
				m.spouts(r, task.Control{Activity: m.activity})
			}
		}
	case abandon:
		m.err = fmt.Errorf("topology %q: %w", m.cfg.Plan.Topology, ErrAbandoned)
	case checkpointNow:
		for _, r := range m.regions {
			m.step(r, checkpoint.CheckpointRequested{})
		}
	case savepoint:
		m.savepoint(c)
	case rollback, goBack:
		step := m.rollback
		if c.verb == goBack {
			step = m.goBack
		}
		if err := step(c); err != nil {
			c.reply <- answer{err: fmt.Errorf("roll back to %s: %w", c.name, err)}
		}
	case showHead:
		c.reply <- answer{head: m.mover.Head()}
	}
}

// saving is a savepoint that is being taken.
type saving struct {
	name  string
	reply chan<- answer
	after map[*region]checkpoint.BatchID // regions without it yet: the last batch that is too early
	edits map[int]checkpoint.Ref         // pins under way, by id
	refs  []checkpoint.Ref
}

func (m *Master) savepoint(c command) {
	s := &saving{name: c.name, reply: c.reply, after: map[*region]checkpoint.BatchID{}, edits: map[int]checkpoint.Ref{}}
	m.saving = append(m.saving, s)
	var finished []*region
	for _, r := range m.regions {
		switch {
		case r.over:
			finished = append(finished, r)
		case !r.started:
			m.saved(s, fmt.Errorf("region %q is not running: try again", r.Name))
			return
		default:
			s.after[r] = r.injected
		}
	}
	for _, r := range finished { // it has a last checkpoint, unless it had nothing to commit
		if current := m.mover.Head().Regions[r.Name].Current(); current != nil {
			m.pin(s, *current)
		}
		if !slices.Contains(m.saving, s) { // the name is in use
			return
		}
	}
	for _, r := range m.regions {
		m.step(r, checkpoint.CheckpointRequested{})
	}
}

// pin has a checkpoint of a savepoint pinned.
func (m *Master) pin(s *saving, ref checkpoint.Ref) {
	m.edits++
	s.edits[m.edits] = checkpoint.Ref{Generation: ref.Generation, Batch: ref.Batch}
	m.moveHead(checkpoint.EditRequested{ID: m.edits, Edit: checkpoint.PinEdit(ref.Generation, ref.Batch, s.name)})
}

// saveAgain asks once more for the checkpoints that savepoints wait for: a region that
// has come up again has forgotten it.
func (m *Master) saveAgain(r *region) {
	for _, s := range m.saving {
		if _, waits := s.after[r]; waits {
			s.after[r] = r.injected
			r.env.Post(checkpoint.CheckpointRequested{})
		}
	}
}

// committedFor goes on with the savepoints that wait for a checkpoint of a region.
func (m *Master) committedFor(r *region, n checkpoint.BatchID, g checkpoint.Generation) {
	for _, s := range m.saving {
		if early, waits := s.after[r]; waits && n > early {
			delete(s.after, r)
			m.pin(s, checkpoint.Ref{Generation: g, Batch: n})
		}
	}
}

// edited takes what has become of a pin.
func (m *Master) edited(a checkpoint.Edited) {
	for _, s := range m.saving {
		ref, mine := s.edits[a.ID]
		if !mine {
			continue
		}
		delete(s.edits, a.ID)
		s.refs = append(s.refs, ref)
		if a.Err != nil || len(s.edits)+len(s.after) == 0 {
			m.saved(s, a.Err)
		}
		return
	}
}

// saved answers who asked for a savepoint.
func (m *Master) saved(s *saving, err error) {
	for i, other := range m.saving {
		if other == s {
			m.saving = append(m.saving[:i:i], m.saving[i+1:]...)
		}
	}
	if err != nil {
		err = fmt.Errorf("take savepoint %q: %w", s.name, err)
	}
	s.reply <- answer{refs: s.refs, err: err}
}

// rollback begins one: it has the manifest of the checkpoint read.
func (m *Master) rollback(c command) error {
	region, ref, err := Find(m.mover.Head(), m.cfg.Plan.Topology, c.name)
	if err != nil {
		return err
	}
	if _, err := m.mayRoll(region); err != nil {
		return err
	}
	c.verb, c.found = goBack, &found{region: region, ref: ref}
	m.io.Go(func() {
		c.found.manifest, c.found.err = checkpoint.ReadManifest(m.ctx, m.cfg.Store, ref)
		m.cfg.Control.mail.Put(c)
	})
	return nil
}

// goBack goes back to a checkpoint that can be restored.
func (m *Master) goBack(c command) error {
	f := c.found
	if f.err != nil {
		return f.err
	}
	r, err := m.mayRoll(f.region)
	if err != nil {
		return err
	}
	to, err := checkpoint.TargetOf(m.mover.Head(), f.region, f.ref, f.manifest, c.drop)
	if err != nil {
		return err
	}
	if _, err := m.fit(f.manifest, fitting{old: f.ref.Generation < r.first, quiet: true}); err != nil {
		return err
	}
	r.rolling = c.reply
	m.step(r, checkpoint.RollbackRequested{To: to})
	return nil
}

// mayRoll returns a region if it can be told now to go back.
func (m *Master) mayRoll(name string) (*region, error) {
	for _, r := range m.regions {
		switch {
		case r.Name != name:
		case r.over:
			return nil, fmt.Errorf("region %q has ended: start the topology from that checkpoint instead", name)
		case !r.started || r.raising || r.rolling != nil:
			return nil, fmt.Errorf("region %q is restarting: try again", name)
		default:
			return r, nil
		}
	}
	return nil, fmt.Errorf("the topology has no region %q any more", name)
}

// raised answers who asked for a rollback.
func (r *region) raised(err error) {
	if r.rolling != nil {
		r.rolling <- answer{err: err}
		r.rolling = nil
	}
}

// unanswered tells those who still wait that the run has ended.
func (m *Master) unanswered() {
	for len(m.saving) > 0 {
		m.saved(m.saving[0], errEnded)
	}
	for _, r := range m.regions {
		r.raised(errEnded)
	}
	m.cfg.Control.end()
}
