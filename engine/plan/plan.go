// Package plan turns the graph of a topology into tasks, channels and regions. It
// is pure: the same graph gives the same plan on every machine.
package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Role says how a component takes part in checkpoints.
type Role uint8

// The roles.
const (
	Spout    Role = iota
	Plain         // a bolt without state
	Stateful      // txn.StatefulBolt
	Keyed         // txn.KeyedBolt
)

// String returns the role's name in lower case.
func (r Role) String() string {
	return [...]string{"spout", "bolt", "stateful bolt", "keyed bolt"}[r]
}

// Component is a node of the graph.
type Component struct {
	ID      string
	Role    Role
	Tasks   int
	Streams []*tuple.Stream // what it emits
	Inputs  []Input         // what it subscribes to; none for spouts
	// Ordered: it commits to the outside world, batch by batch.
	Ordered bool
	// KeyFields, if not nil, take the place of the grouping fields as the key.
	KeyFields []string
}

// Input is one subscription of a bolt.
type Input struct {
	Component string
	Stream    string
	Grouping  txn.Grouping
	Fields    []string // for txn.ByFields and txn.PartialKey
	Custom    func() txn.CustomGrouping
	// Combine, if it is not 0, is how senders combine CombineField of tuples that are
	// the same otherwise.
	Combine      txn.Combine
	CombineField string
}

// Task is one instance of a component.
type Task struct {
	ID        int // topology-wide, from 1
	Component int // index in Plan.Components
	Index     int // within the component
}

// Region is a connected part of the graph: the unit of checkpoint and failure.
type Region struct {
	Name  string // the first of its component ids in byte order
	Tasks []int
}

// Plan is a topology laid out in tasks.
type Plan struct {
	Topology   string
	KeyGroups  int
	Components []Component
	Tasks      []Task // in the order of their ids: components by id in byte order, as in Storm
	Regions    []Region

	first map[string]int // component id to its first task
	index map[string]int // component id to its place in Components
}

// New checks a graph and lays it out. The error joins every mistake found.
func New(topology string, keyGroups int, comps []Component) (*Plan, error) {
	p := &Plan{
		Topology:   topology,
		KeyGroups:  keyGroups,
		Components: comps,
		first:      map[string]int{},
		index:      map[string]int{},
	}
	if err := check(comps, keyGroups); err != nil {
		return nil, err
	}
	for i, c := range comps {
		p.index[c.ID] = i
	}
	for _, id := range slices.Sorted(maps.Keys(p.index)) {
		p.first[id] = len(p.Tasks) + 1
		for t := range comps[p.index[id]].Tasks {
			p.Tasks = append(p.Tasks, Task{ID: len(p.Tasks) + 1, Component: p.index[id], Index: t})
		}
	}
	p.Regions = p.regions()
	return p, nil
}

// Task returns the task of an id.
func (p *Plan) Task(id int) Task { return p.Tasks[id-1] }

// Component returns the component of a task.
func (p *Plan) Component(task int) *Component { return &p.Components[p.Task(task).Component] }

// TaskIDs returns the ids of a component's tasks: [first, first+n).
func (p *Plan) TaskIDs(component string) (first, n int) {
	return p.first[component], p.Components[p.index[component]].Tasks
}

// IDs returns the ids of a component's tasks, or nil if there is no such component.
func (p *Plan) IDs(component string) []int {
	if p.Lookup(component) == nil {
		return nil
	}
	first, n := p.TaskIDs(component)
	ids := make([]int, n)
	for i := range ids {
		ids[i] = first + i
	}
	return ids
}

// Inputs returns the streams that a component subscribes to.
func (p *Plan) Inputs(c *Component) []*tuple.Stream {
	var all []*tuple.Stream
	for _, in := range c.Inputs {
		all = append(all, p.Lookup(in.Component).Stream(in.Stream))
	}
	return all
}

// Streams returns all streams that components emit.
func (p *Plan) Streams() []*tuple.Stream {
	var all []*tuple.Stream
	for _, c := range p.Components {
		all = append(all, c.Streams...)
	}
	return all
}

// Lookup returns a component by its id, or nil.
func (p *Plan) Lookup(component string) *Component {
	if i, ok := p.index[component]; ok {
		return &p.Components[i]
	}
	return nil
}

// Stream returns a component's stream, or nil.
func (c *Component) Stream(id string) *tuple.Stream {
	for _, s := range c.Streams {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Subscribers returns the components that read from a component, each with its
// input, in the order they were added.
func (p *Plan) Subscribers(component string) []Subscriber {
	var subs []Subscriber
	for i := range p.Components {
		c := &p.Components[i]
		for _, in := range c.Inputs {
			if in.Component == component {
				subs = append(subs, Subscriber{c, in})
			}
		}
	}
	return subs
}

// Subscriber is a component with one of its inputs.
type Subscriber struct {
	Component *Component
	Input     Input
}

// Senders returns the ids of all tasks that have a channel to a task of component,
// in order. There is one channel for each, whatever the number of subscriptions.
func (p *Plan) Senders(component string) []int {
	var ids []int
	for _, in := range p.Lookup(component).Inputs {
		first, n := p.TaskIDs(in.Component)
		for t := range n {
			ids = append(ids, first+t)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// IsEnd reports whether nothing subscribes to a component.
func (p *Plan) IsEnd(component string) bool { return len(p.Subscribers(component)) == 0 }

// KeyPositions returns, for a stream that a keyed bolt reads, the positions of the
// fields that make its key.
func (p *Plan) KeyPositions(c *Component, s *tuple.Stream) []int {
	names := c.KeyFields
	for _, in := range c.Inputs {
		if names == nil && in.Component == s.Component && in.Stream == s.ID {
			names = in.Fields
		}
	}
	pos := make([]int, len(names))
	for i, n := range names {
		pos[i] = s.Fields.Index(n)
	}
	return pos
}

// regions finds the connected parts of the graph.
func (p *Plan) regions() []Region {
	root := make([]int, len(p.Components))
	for i := range root {
		root[i] = i
	}
	var find func(i int) int
	find = func(i int) int {
		if root[i] != i {
			root[i] = find(root[i])
		}
		return root[i]
	}
	for i, c := range p.Components {
		for _, in := range c.Inputs {
			root[find(i)] = find(p.index[in.Component])
		}
	}
	byRoot := map[int]*Region{}
	for _, t := range p.Tasks {
		r := find(t.Component)
		id := p.Components[t.Component].ID
		if byRoot[r] == nil {
			byRoot[r] = &Region{Name: id}
		}
		byRoot[r].Name = min(byRoot[r].Name, id)
		byRoot[r].Tasks = append(byRoot[r].Tasks, t.ID)
	}
	var all []Region
	for _, r := range byRoot {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Fingerprint returns a short text that changes with the components, roles, edges
// and keys of a region, but not with parallelism.
func (p *Plan) Fingerprint(r Region) string {
	var lines []string
	seen := map[int]bool{}
	for _, t := range r.Tasks {
		i := p.Task(t).Component
		if seen[i] {
			continue
		}
		seen[i] = true
		c := p.Components[i]
		lines = append(lines, fmt.Sprintf("%s %s %q", c.ID, c.Role, c.KeyFields))
		for _, in := range c.Inputs {
			lines = append(lines, fmt.Sprintf("%s < %s/%s %d %q", c.ID, in.Component, in.Stream, in.Grouping, in.Fields))
		}
	}
	slices.Sort(lines)
	h := fnv.New64a()
	h.Write([]byte(strings.Join(lines, "\n")))
	return fmt.Sprintf("%016x", h.Sum64())
}
