package task

import (
	"fmt"

	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/tuple"
)

// FailedStream is the stream of a bolt to which tuples go on which its code has
// failed topology.poison.max.attempts times. Its fields are "source" and "stream"
// (what emitted the tuple), "reason" (the last error), "attempts", and "values" (a
// []tuple.Value).
const FailedStream = "__failed"

// failedFields are the fields of FailedStream.
var failedFields = tuple.Fields{"source", "stream", "reason", "attempts", "values"}

// NewFailedStream returns the description of a component's failed stream.
func NewFailedStream(component string) *tuple.Stream {
	return &tuple.Stream{Component: component, ID: FailedStream, Fields: failedFields}
}

// mustBeCareful reports whether tuples must be looked at one by one.
func (t *task) mustBeCareful() bool {
	return t.conf.Bool("topology.debug") || t.env.Suspects.Careful(t.comp.ID)
}

// beCareful makes a bolt without keys execute carefully if it must.
func (b *bolt) beCareful() {
	if b.mustBeCareful() {
		b.execute = func(f *tuple.Frame) error { return b.executeCarefully(f, nil) }
	}
}

// executeCarefully executes the tuples of a frame one at a time. selectKey, if not
// nil, makes the key of a tuple the current one.
func (b *bolt) executeCarefully(f *tuple.Frame, selectKey func(row int) error) error {
	debug := b.conf.Bool("topology.debug")
	b.view.At(f, 0)
	for r := range f.Len() {
		b.view.Next(f, r)
		b.current = &b.view
		if debug {
			b.env.Logger.Debug("execute", "component", b.comp.ID, "task", b.Index, "tuple", b.view.String())
		}
		if failure, ok := b.env.Suspects.Failed[b.poisonKey()]; ok {
			b.divert(failure)
			continue
		}
		if selectKey != nil {
			if err := selectKey(r); err != nil {
				return err
			}
		}
		if err := b.user.Execute(&b.view, b.out); err != nil {
			return err
		}
	}
	return nil
}

// divert sends the current tuple to the failed stream instead of executing it.
func (b *bolt) divert(f poison.Failure) {
	t := b.current.Clone()
	b.env.Logger.Error("tuple goes to the failed stream", "component", b.comp.ID, "task", b.Index,
		"tuple", t.String(), "attempts", f.Attempts, "reason", f.Reason)
	b.out.EmitTo(FailedStream, tuple.String(t.Stream().Component), tuple.String(t.Stream().ID),
		tuple.String(f.Reason), tuple.Int(f.Attempts), tuple.Any(t.Values()))
}

// poisonKey identifies the current tuple. Objects count by how they print.
func (t *task) poisonKey() poison.Key {
	k := poison.Key{Component: t.comp.ID, Source: t.current.Stream().Component, SourceStream: t.current.Stream().ID}
	for _, v := range t.current.Values() {
		h, ok := v.Hash()
		if !ok {
			h = tuple.HashBytes(fmt.Sprint(v.Any()), uint64(tuple.KindAny))
		}
		k.Hash = tuple.HashBytes(fmt.Sprint(k.Hash, h), 0)
	}
	return k
}

// blame says on which tuple user code has failed, if poisoned tuples are looked for.
func (t *task) blame(err error) error {
	if !t.executing || t.conf.Int("topology.poison.max.attempts") == 0 {
		return err
	}
	e := &poison.TupleError{Component: t.comp.ID, Err: err}
	if t.current != nil {
		e.Key = t.poisonKey()
	}
	return e
}
