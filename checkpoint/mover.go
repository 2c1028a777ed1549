package checkpoint

import (
	"fmt"
	"slices"
)

// MoverConfig describes the head to its Mover.
type MoverConfig struct {
	Topology string
	RunID    string // for a head that is made new; an existing one keeps its own
	Head     *Head  // as read; nil = there is none
	Version  Version
	Writer   string // different for every Mover that ever was
	Retained int    // checkpoints to keep per region, at least the current one
	// Strict: the head must be the one that was read; whoever has moved it since has won.
	Strict bool
}

// Mover moves the head of a topology for all its regions: one compare-and-swap at a
// time, with the requests that came meanwhile merged into the next. It carries them
// out in the order in which they came, so a Raised tells for certain what has been
// committed before it. It is not safe for concurrent use.
type Mover struct {
	cfg     MoverConfig
	head    *Head
	version Version
	swaps   int

	queue []MoverEvent // requests that wait for the next swap
	swap  *swap        // the one under way, or nil
	wrote bool         // a swap of its own was carried out
	lost  bool
}

// swap is a new head and what follows from it.
type swap struct {
	head     *Head
	requests []MoverEvent  // what it carries out
	changed  bool          // it is another head than the one before
	done     []MoverAction // Raised, Advanced and Edited, in order
	unknown  error         // the outcome of the last try, if it is unknown
}

// NewMover returns a Mover that knows the head as it was read.
func NewMover(c MoverConfig) *Mover {
	m := &Mover{cfg: c, version: c.Version}
	if c.Head != nil {
		m.head = c.Head.Clone()
	}
	return m
}

// Head returns a copy of the head as it was last read or written; nil if there is none.
func (m *Mover) Head() *Head {
	if m.head == nil {
		return nil
	}
	return m.head.Clone()
}

// Busy reports whether a swap is under way.
func (m *Mover) Busy() bool { return m.swap != nil && !m.lost }

// Step takes one event and returns what to do, in order. After a Lost there are no
// further actions. The result is the caller's; a Head in it is not to be changed.
func (m *Mover) Step(ev MoverEvent) []MoverAction {
	if m.lost {
		return nil
	}
	switch ev := ev.(type) {
	case RaiseRequested, AdvanceRequested, SettleRequested, EditRequested:
		m.queue = append(m.queue, ev)
		if m.swap == nil {
			return m.begin()
		}
	case SwapSucceeded, SwapRefused, SwapUnknown, HeadReread, RereadFailed:
		if m.swap != nil {
			return m.answered(ev)
		}
	}
	return nil
}

// answered takes what the store said about the swap under way.
func (m *Mover) answered(ev MoverEvent) []MoverAction {
	switch ev := ev.(type) {
	case SwapSucceeded:
		return m.succeed(ev.Version)
	case SwapRefused:
		m.swap.unknown = nil
	case SwapUnknown:
		m.swap.unknown = ev.Err
	case RereadFailed:
		return append(m.notYet(ev.Err), Reread{})
	case HeadReread:
		return m.reread(ev)
	case RaiseRequested, AdvanceRequested, SettleRequested, EditRequested: // no answers
	}
	return []MoverAction{Reread{}}
}

// begin makes the next swap out of the queue, if that changes anything.
func (m *Mover) begin() []MoverAction {
	s := &swap{requests: m.queue, head: &Head{Topology: m.cfg.Topology, RunID: m.cfg.RunID, Regions: map[string]RegionHead{}}}
	if m.head != nil {
		s.head = m.head.Clone()
	}
	for _, ev := range m.queue {
		switch ev := ev.(type) {
		case RaiseRequested:
			s.raise(ev)
		case AdvanceRequested:
			s.advance(ev, max(m.cfg.Retained, 1))
		case SettleRequested:
			s.changed = s.settle(ev.Region, ev.Generation, ev.Settled) || s.changed
		case EditRequested:
			s.edit(ev)
		default: // no requests
		}
	}
	m.queue = nil
	if !s.changed {
		return s.done
	}
	s.head.trim()
	m.swaps++
	s.head.Writer, s.head.Editor = fmt.Sprintf("%s-%d", m.cfg.Writer, m.swaps), ""
	m.swap = s
	return []MoverAction{Swap{Old: m.version, Head: s.head}}
}

// edit makes an operator's change, if it can be made.
func (s *swap) edit(ev EditRequested) {
	edited := s.head.Clone()
	dropped, err := ev.Edit(edited)
	if err == nil {
		s.head, s.changed = edited, true
	}
	s.done = append(s.done, Edited{ID: ev.ID, Dropped: dropped, Err: err})
}

// settle notes how far a region was settled in a generation, if that is still its own.
func (s *swap) settle(region string, g Generation, n BatchID) bool {
	r := s.head.Regions[region]
	news := g == r.Generation && r.settle(n)
	if news {
		s.head.Regions[region] = r
	}
	return news
}

func (s *swap) raise(ev RaiseRequested) {
	s.settle(ev.Region, ev.Generation, ev.Settled)
	r := s.head.Regions[ev.Region]
	s.head.Generation++
	r.Generation = s.head.Generation
	if ev.Start != "" && ev.Start != r.Started {
		r.Started, r.StartedAt = ev.Start, r.Generation
	}
	s.head.Regions[ev.Region] = r
	s.changed = true
	raised := Raised{Region: ev.Region, Generation: r.Generation}
	if ev.To != nil {
		raised.Err = s.head.goBack(ev.Region, *ev.To)
	}
	if current := s.head.Regions[ev.Region].Current(); current != nil {
		from := *current
		raised.From, raised.Oldest = &from, s.head.Oldest(ev.Region)
	}
	s.done = append(s.done, raised)
}

// advance commits a checkpoint, unless its generation is over (invariant I3) or it
// would take the region back.
func (s *swap) advance(ev AdvanceRequested, retained int) {
	s.settle(ev.Region, ev.Generation, ev.Settled)
	r := s.head.Regions[ev.Region]
	current := r.Current()
	if ev.Generation != r.Generation || current != nil && ev.Ref.Batch <= current.Batch {
		return
	}
	refs := append(r.Retained, ev.Ref)
	surplus := max(len(refs)-retained, 0)
	dropped := slices.Clone(refs[:surplus])
	r.Retained = slices.Clone(refs[surplus:])
	s.head.Regions[ev.Region] = r
	s.changed = true
	s.done = append(s.done, Advanced{
		Region: ev.Region, Generation: ev.Generation, Batch: ev.Ref.Batch,
		Oldest:  s.head.Oldest(ev.Region),
		Dropped: slices.DeleteFunc(dropped, func(ref Ref) bool { return s.head.keeps(ev.Region, ref) }),
	})
}

// succeed takes the swap as carried out, tells whom it concerns, and goes on.
func (m *Mover) succeed(v Version) []MoverAction {
	s := m.swap
	m.head, m.version, m.swap, m.wrote = s.head, v, nil, true
	return append(s.done, m.begin()...)
}

// reread decides what became of a swap whose outcome is not known: invariant I2. A head
// that an operator has edited keeps the mark of its writer: it is ours, or still the one
// that the swap is to replace. To a writer that has only begun, another's head is as good
// as the one that it has read.
func (m *Mover) reread(ev HeadReread) []MoverAction {
	s := m.swap
	switch {
	case ev.Head != nil && ev.Head.Writer == s.head.Writer:
		s.head = ev.Head.Clone()
		return m.succeed(ev.Version)
	case s.unknown != nil && ev.Version == m.version:
		again := Swap{Old: m.version, Head: s.head}
		return append(m.notYet(s.unknown), again)
	case ev.Head != nil && m.head != nil && ev.Version != m.version && (ev.Head.Writer == m.head.Writer || m.starts(ev.Head)):
		m.head, m.version, m.swap = ev.Head.Clone(), ev.Version, nil
		m.queue = append(s.requests, m.queue...)
		return m.begin()
	}
	m.lost = true
	found := "there is none"
	if ev.Head != nil {
		found = fmt.Sprintf("version %q by writer %q is there", ev.Version, ev.Head.Writer)
	}
	return []MoverAction{Lost{fmt.Errorf("move the head of topology %q from version %q as writer %q: %w: %s",
		m.cfg.Topology, m.version, s.head.Writer, ErrHeadMoved, found)}}
}

// starts reports whether this writer has no generation yet, so that nobody can have
// fenced it: whoever has moved the head meanwhile is fenced by its start.
func (m *Mover) starts(now *Head) bool {
	return !m.wrote && !m.cfg.Strict && now.Topology == m.head.Topology && now.RunID == m.head.RunID
}

// notYet tells the regions in the swap that it is being tried again.
func (m *Mover) notYet(err error) []MoverAction {
	var out []MoverAction
	for _, a := range m.swap.done {
		switch a := a.(type) {
		case Raised:
			out = append(out, SwapFailed{Region: a.Region, Err: err})
		case Advanced:
			out = append(out, SwapFailed{Region: a.Region, Generation: a.Generation, Err: err})
		default: // only these wait for the swap
		}
	}
	return out
}
