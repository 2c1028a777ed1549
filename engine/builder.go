// Package engine builds topologies and runs them.
package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
	"github.com/isobar-io/isobar/txn"
)

// TopologyBuilder gathers the components of a topology. The zero value is not
// usable: see NewTopologyBuilder.
type TopologyBuilder struct {
	components []*component
	config     config.Values
	hooks      []txn.TaskHook
	finished   func(Result)
	codecs     []wire.Codec
}

type component struct {
	plan.Component
	factory func() any
	own     map[string]any // configuration that the instance wants
	given   map[string]any // configuration that the declarer was given
}

func (c *component) set(key string, value any) {
	if c.given == nil {
		c.given = map[string]any{}
	}
	c.given[key] = value
}

// NewTopologyBuilder returns an empty builder.
func NewTopologyBuilder() *TopologyBuilder { return &TopologyBuilder{} }

// SetConfig sets configuration of the topology's own; flags and options of a run
// take precedence over it.
func (b *TopologyBuilder) SetConfig(v config.Values) { b.config = v }

// OnFinished has fn called after the last acknowledgement of a run that ended in
// order, also of a rerun that had nothing left to do.
func (b *TopologyBuilder) OnFinished(fn func(Result)) { b.finished = fn }

// RegisterCodec says how values of a type travel between processes, within tuples. In one
// process they are handed on as they are.
func (b *TopologyBuilder) RegisterCodec(c wire.Codec) { b.codecs = append(b.codecs, c) }

// AddTaskHook has h called by every task.
func (b *TopologyBuilder) AddTaskHook(h txn.TaskHook) { b.hooks = append(b.hooks, h) }

// SetSpout adds a spout that is run by a number of tasks, each on a goroutine of its
// own. newSpout is called once for every new instance of a task, and once by Build to
// look at it.
func (b *TopologyBuilder) SetSpout(id string, newSpout func() txn.Spout, parallelism int) *SpoutDeclarer {
	return &SpoutDeclarer{b.add(id, func() any { return newSpout() }, parallelism)}
}

// SetBolt adds a bolt and returns the declarer of its inputs. What kind of bolt it is
// (txn.StatefulBolt, txn.KeyedBolt, or plain) is seen from its methods. newBolt and
// parallelism are as in SetSpout.
func (b *TopologyBuilder) SetBolt(id string, newBolt func() txn.Bolt, parallelism int) *BoltDeclarer {
	return &BoltDeclarer{b.add(id, func() any { return newBolt() }, parallelism)}
}

func (b *TopologyBuilder) add(id string, factory func() any, tasks int) *component {
	c := &component{Component: plan.Component{ID: id, Tasks: tasks}, factory: factory}
	b.components = append(b.components, c)
	return c
}

// Topology is a checked graph of components, ready to run.
type Topology struct {
	components []plan.Component
	factories  map[string]func() any
	own        map[string]config.Values // configuration by component
	config     config.Values
	hooks      []txn.TaskHook
	finished   func(Result)
	codecs     *wire.Registry // of what travels between processes
}

// Build checks the topology. The error joins every mistake found.
func (b *TopologyBuilder) Build() (*Topology, error) {
	t := &Topology{factories: map[string]func() any{}, own: map[string]config.Values{}, config: b.config, hooks: b.hooks, finished: b.finished}
	var errs []error
	var err error
	if t.codecs, err = wire.NewRegistry(b.codecs...); err != nil {
		errs = append(errs, err)
	}
	for _, c := range b.components {
		errs = append(errs, c.inspect())
		own, err1 := config.OfComponent(c.ID, c.own)
		given, err2 := config.OfComponent(c.ID, c.given)
		errs = append(errs, err1, err2)
		t.own[c.ID] = config.Merge(own, given)
		t.factories[c.ID] = c.factory
		t.components = append(t.components, c.Component)
	}
	if _, err := t.plan("check", config.Merge(config.Defaults(), b.config), nil); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// checkConfig finds values that do not go together.
func (t *Topology) checkConfig(c config.Values) error {
	var errs []error
	for _, comp := range t.components {
		own := config.Merge(c, t.own[comp.ID])
		attempts, restarts := own.Int("topology.poison.max.attempts"), own.Int("topology.restart.max")
		if attempts > 0 && comp.Role != plan.Spout && !t.readsFailed(comp.ID) {
			errs = append(errs, fmt.Errorf("component %q: topology.poison.max.attempts is %d, but no bolt reads its failed stream, so poison tuples would be lost: add one with Grouping(%q, engine.FailedStream, engine.Global())", comp.ID, attempts, comp.ID))
		}
		if attempts > 0 && restarts > 0 && attempts >= restarts {
			errs = append(errs, fmt.Errorf("component %q: topology.poison.max.attempts is %d and must be lower than topology.restart.max, which is %d", comp.ID, attempts, restarts))
		}
	}
	return errors.Join(errs...)
}

// readsFailed reports whether a bolt reads the failed stream of a component.
func (t *Topology) readsFailed(id string) bool {
	for _, c := range t.components {
		for _, in := range c.Inputs {
			if in.Component == id && in.Stream == FailedStream {
				return true
			}
		}
	}
	return false
}

// plan lays the topology out under a configuration. Numbers of tasks in tasks count
// more than what it says.
func (t *Topology) plan(name string, c config.Values, tasks map[string]int) (*plan.Plan, error) {
	comps := slices.Clone(t.components)
	for i := range comps {
		own := config.Merge(c, t.own[comps[i].ID])
		if n := own.Int("topology.tasks"); n > 0 {
			comps[i].Tasks = n
		}
		if most := own.Int("topology.max.task.parallelism"); most > 0 {
			comps[i].Tasks = min(comps[i].Tasks, most)
		}
		if n := tasks[comps[i].ID]; n > 0 {
			comps[i].Tasks = n
		}
	}
	return plan.New(name, c.Int("topology.key.groups"), comps)
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
	case txn.StatefulBolt, txn.TwoPhaseSink, txn.StagedSink:
		c.Role = plan.Stateful
		_, c.Ordered = inst.(txn.OrderedCommitter)
	default:
		c.Role = plan.Plain
	}
	if c.Role != plan.Spout {
		c.Streams = []*tuple.Stream{task.NewFailedStream(c.ID)}
	}
	if cfg, ok := inst.(txn.Configurer); ok {
		c.own = cfg.ComponentConfiguration()
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
	c.Streams = append(c.Streams, streams...)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("component %q: %w", c.ID, err)
	}
	return nil
}
