// Package engine builds topologies and runs them.
package engine

import (
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// TopologyBuilder gathers the components of a topology. The zero value is not
// usable: see NewTopologyBuilder.
type TopologyBuilder struct {
	components []*component
	config     config.Values
	finished   func(Result)
}

type component struct {
	plan.Component
	factory func() any
}

// NewTopologyBuilder returns an empty builder.
func NewTopologyBuilder() *TopologyBuilder { return &TopologyBuilder{} }

// SetConfig sets configuration of the topology's own; flags and options of a run
// take precedence over it.
func (b *TopologyBuilder) SetConfig(v config.Values) { b.config = v }

// OnFinished has fn called after the last acknowledgement of a run that ended in
// order, also of a rerun that had nothing left to do.
func (b *TopologyBuilder) OnFinished(fn func(Result)) { b.finished = fn }

// SetSpout adds a spout with a number of tasks. newSpout is called once for every
// new instance of a task, and once by Build to look at it.
func (b *TopologyBuilder) SetSpout(id string, newSpout func() txn.Spout, tasks int) {
	b.add(id, func() any { return newSpout() }, tasks)
}

// SetBolt adds a bolt with a number of tasks and returns the declarer of its inputs.
// What kind of bolt it is (txn.StatefulBolt, txn.KeyedBolt, or plain) is seen from
// its methods. newBolt is called as newSpout in SetSpout.
func (b *TopologyBuilder) SetBolt(id string, newBolt func() txn.Bolt, tasks int) *BoltDeclarer {
	return &BoltDeclarer{b.add(id, func() any { return newBolt() }, tasks)}
}

func (b *TopologyBuilder) add(id string, factory func() any, tasks int) *component {
	c := &component{Component: plan.Component{ID: id, Tasks: tasks}, factory: factory}
	b.components = append(b.components, c)
	return c
}

// BoltDeclarer declares the inputs of a bolt. Its methods return it.
type BoltDeclarer struct{ c *component }

func (d *BoltDeclarer) input(component string, g txn.Grouping, fields ...string) *BoltDeclarer {
	return d.Input(plan.Input{Component: component, Stream: tuple.DefaultStream, Grouping: g, Fields: fields})
}

// Input subscribes to any stream in any way.
func (d *BoltDeclarer) Input(in plan.Input) *BoltDeclarer {
	d.c.Inputs = append(d.c.Inputs, in)
	return d
}

// ShuffleGrouping spreads the tuples of a component evenly over the bolt's tasks.
func (d *BoltDeclarer) ShuffleGrouping(component string) *BoltDeclarer {
	return d.input(component, txn.Shuffle)
}

// FieldsGrouping sends tuples with the same values in the fields to the same task.
func (d *BoltDeclarer) FieldsGrouping(component string, fields ...string) *BoltDeclarer {
	return d.input(component, txn.ByFields, fields...)
}

// AllGrouping sends every tuple to every task.
func (d *BoltDeclarer) AllGrouping(component string) *BoltDeclarer {
	return d.input(component, txn.All)
}

// GlobalGrouping sends all tuples to the bolt's first task.
func (d *BoltDeclarer) GlobalGrouping(component string) *BoltDeclarer {
	return d.input(component, txn.Global)
}

// Topology is a checked graph of components, ready to run.
type Topology struct {
	components []plan.Component
	factories  map[string]func() any
	config     config.Values
	finished   func(Result)
}

// Build checks the topology. The error joins every mistake found.
func (b *TopologyBuilder) Build() (*Topology, error) {
	t := &Topology{factories: map[string]func() any{}, config: b.config, finished: b.finished}
	var errs []error
	for _, c := range b.components {
		errs = append(errs, c.inspect())
		t.factories[c.ID] = c.factory
		t.components = append(t.components, c.Component)
	}
	if _, err := t.plan("check", config.Merge(config.Defaults(), b.config)); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Topology) plan(name string, c config.Values) (*plan.Plan, error) {
	return plan.New(name, c.Int("topology.key.groups"), t.components)
}

// inspect makes an instance and sees what it is and what it emits.
func (c *component) inspect() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("component %q: making an instance panicked: %v", c.ID, r)
		}
	}()
	inst := c.factory()
	if inst == nil {
		return fmt.Errorf("component %q: its function returned nil", c.ID)
	}
	switch inst := inst.(type) {
	case txn.Spout:
		c.Role = plan.Spout
	case txn.KeyedBolt:
		c.Role = plan.Keyed
		if k, ok := inst.(txn.Keyer); ok {
			c.KeyFields = append([]string{}, k.KeyFields()...)
		}
	case txn.StatefulBolt:
		c.Role = plan.Stateful
	default:
		c.Role = plan.Plain
	}
	d, ok := inst.(txn.Declarer)
	if !ok {
		return nil
	}
	var out txn.OutputDeclarer
	d.DeclareOutputFields(&out)
	streams, errs := out.Streams()
	for _, s := range streams {
		s.Component = c.ID
	}
	c.Streams = streams
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("component %q: %w", c.ID, err)
	}
	return nil
}
