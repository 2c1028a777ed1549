package engine

import (
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Grouping says which tasks of a bolt receive a tuple; see [BoltDeclarer.Grouping].
type Grouping struct {
	kind   txn.Grouping
	fields []string
	custom func() txn.CustomGrouping

	combine      txn.Combine
	combineField string
}

// Shuffle spreads tuples evenly over the tasks.
func Shuffle() Grouping { return Grouping{kind: txn.Shuffle} }

// LocalOrShuffle spreads tuples evenly over the tasks in the sender's process, or
// over all tasks if there are none.
func LocalOrShuffle() Grouping { return Grouping{kind: txn.LocalOrShuffle} }

// None is for those who do not care: a task at random.
func None() Grouping { return Grouping{kind: txn.None} }

// Fields sends tuples with the same values in the fields to the same task.
func Fields(fields ...string) Grouping { return Grouping{kind: txn.ByFields, fields: fields} }

// Combine lets each sender combine tuples of the same key that wait to be sent, so that
// fewer have to be: instead of (a, 2) and (a, 3) it sends (a, 5) if the field is summed.
// It is for groupings by fields, of streams that have no other fields than those and the
// one to combine, which holds an int64. A bolt must not depend on how many tuples there
// are, only on what they come to. Which tuples meet depends on the moment.
func (g Grouping) Combine(field string, how txn.Combine) Grouping {
	g.combine, g.combineField = how, field
	return g
}

// PartialKey sends tuples with the same values in the fields to one of two tasks,
// whichever the sender has sent less to: skewed keys spread, and what the two have
// found must be put together downstream. It is not for keyed bolts.
func PartialKey(fields ...string) Grouping { return Grouping{kind: txn.PartialKey, fields: fields} }

// All sends every tuple to every task.
func All() Grouping { return Grouping{kind: txn.All} }

// Global sends all tuples to the first task.
func Global() Grouping { return Grouping{kind: txn.Global} }

// Direct leaves it to the emitter to name the task; the stream must be direct.
func Direct() Grouping { return Grouping{kind: txn.Direct} }

// Custom leaves it to the user's own grouping, of which every sending task gets an
// instance.
func Custom(newGrouping func() txn.CustomGrouping) Grouping {
	return Grouping{kind: txn.Custom, custom: newGrouping}
}

// BoltDeclarer declares the inputs and the settings of a bolt. Its methods return it.
type BoltDeclarer struct{ c *component }

// Grouping subscribes to a stream of a component. A bolt may subscribe to any number
// of streams, to each once.
func (d *BoltDeclarer) Grouping(component, stream string, g Grouping) *BoltDeclarer {
	d.c.Inputs = append(d.c.Inputs, plan.Input{
		Component: component, Stream: stream, Grouping: g.kind, Fields: g.fields, Custom: g.custom,
		Combine: g.combine, CombineField: g.combineField,
	})
	return d
}

// ShuffleGrouping subscribes to a component's default stream by [Shuffle].
func (d *BoltDeclarer) ShuffleGrouping(component string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, Shuffle())
}

// LocalOrShuffleGrouping subscribes to a component's default stream by
// [LocalOrShuffle].
func (d *BoltDeclarer) LocalOrShuffleGrouping(component string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, LocalOrShuffle())
}

// NoneGrouping subscribes to a component's default stream by [None].
func (d *BoltDeclarer) NoneGrouping(component string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, None())
}

// FieldsGrouping subscribes to a component's default stream by [Fields].
func (d *BoltDeclarer) FieldsGrouping(component string, fields ...string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, Fields(fields...))
}

// PartialKeyGrouping subscribes to a component's default stream by [PartialKey].
func (d *BoltDeclarer) PartialKeyGrouping(component string, fields ...string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, PartialKey(fields...))
}

// AllGrouping subscribes to a component's default stream by [All].
func (d *BoltDeclarer) AllGrouping(component string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, All())
}

// GlobalGrouping subscribes to a component's default stream by [Global].
func (d *BoltDeclarer) GlobalGrouping(component string) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, Global())
}

// DirectGrouping subscribes to a direct stream of a component.
func (d *BoltDeclarer) DirectGrouping(component, stream string) *BoltDeclarer {
	return d.Grouping(component, stream, Direct())
}

// CustomGrouping subscribes to a component's default stream by [Custom].
func (d *BoltDeclarer) CustomGrouping(component string, newGrouping func() txn.CustomGrouping) *BoltDeclarer {
	return d.Grouping(component, tuple.DefaultStream, Custom(newGrouping))
}

// NumTasks sets the number of tasks, which is the parallelism otherwise.
func (d *BoltDeclarer) NumTasks(n int) *BoltDeclarer { return d.Config("topology.tasks", n) }

// Config sets a configuration key for this bolt alone. It wins over what the bolt
// itself wants (txn.Configurer) and over the configuration of the topology.
func (d *BoltDeclarer) Config(key string, value any) *BoltDeclarer {
	d.c.set(key, value)
	return d
}

// SpoutDeclarer declares the settings of a spout. Its methods return it.
type SpoutDeclarer struct{ c *component }

// NumTasks sets the number of tasks, which is the parallelism otherwise.
func (d *SpoutDeclarer) NumTasks(n int) *SpoutDeclarer { return d.Config("topology.tasks", n) }

// Config sets a configuration key for this spout alone, as [BoltDeclarer.Config] does.
func (d *SpoutDeclarer) Config(key string, value any) *SpoutDeclarer {
	d.c.set(key, value)
	return d
}
