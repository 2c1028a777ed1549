package tuple

import (
	"fmt"
	"strings"
)

// Tuple is a view of one row of a [Frame]. It and the bytes it holds are valid
// only until the Execute that it was passed to returns; its strings are valid for
// ever. Use [Tuple.Clone] to keep one.
type Tuple struct {
	vals       []Value
	hash       uint64
	stream     *Stream
	sourceTask int32
	keyed      bool
}

// At makes t a view of row i of f.
func (t *Tuple) At(f *Frame, i int) {
	t.vals = f.Row(i)
	t.stream = f.Stream
	t.sourceTask = f.SourceTask
	t.keyed = f.keyed
	if f.keyed {
		t.hash = f.hashes[i]
	}
}

// Next makes t, which is a view of f, one of row i.
func (t *Tuple) Next(f *Frame, i int) {
	t.vals = f.Row(i)
	if f.keyed {
		t.hash = f.hashes[i]
	}
}

// New returns a tuple that owns its values; tests use it.
func New(s *Stream, vals ...Value) *Tuple {
	return &Tuple{vals: vals, stream: s}
}

// Len returns the number of fields.
func (t *Tuple) Len() int { return len(t.vals) }

// Values returns the values, valid as long as t is. The caller must not change them.
func (t *Tuple) Values() []Value { return t.vals }

// Value returns field i.
func (t *Tuple) Value(i int) Value { return t.vals[i] }

// ByName returns the field of a name. It panics if the stream has no such field.
func (t *Tuple) ByName(name string) Value {
	i := t.stream.Fields.Index(name)
	if i < 0 {
		panic(fmt.Sprintf("tuple: stream %q of %q has no field %q, it has %s",
			t.stream.ID, t.stream.Component, name, strings.Join(t.stream.Fields, ", ")))
	}
	return t.vals[i]
}

// Str returns field i as a string: see [Value.Str].
func (t *Tuple) Str(i int) string { return t.vals[i].Str() }

// Bytes returns field i as bytes that are valid as long as t is.
func (t *Tuple) Bytes(i int) []byte { return t.vals[i].Bytes() }

// Int64 returns field i as an integer.
func (t *Tuple) Int64(i int) int64 { return t.vals[i].Int64() }

// Float64 returns field i as a float.
func (t *Tuple) Float64(i int) float64 { return t.vals[i].Float64() }

// Stream returns the stream that t came on.
func (t *Tuple) Stream() *Stream { return t.stream }

// SourceTask returns the topology-wide id of the task that emitted t.
func (t *Tuple) SourceTask() int { return int(t.sourceTask) }

// Hash returns the hash of the grouping fields, and whether t carries one.
func (t *Tuple) Hash() (uint64, bool) { return t.hash, t.keyed }

// Clone returns a tuple that shares nothing with t's frame.
func (t *Tuple) Clone() *Tuple {
	c := *t
	c.vals = make([]Value, len(t.vals))
	for i, v := range t.vals {
		if v.Kind() == KindBytes {
			v = Bytes(append([]byte(nil), v.Bytes()...))
		}
		c.vals[i] = v
	}
	return &c
}

// String formats t for logs: component, stream and values.
func (t *Tuple) String() string {
	var sb strings.Builder
	if t.stream != nil {
		fmt.Fprintf(&sb, "%s/%s", t.stream.Component, t.stream.ID)
	}
	sb.WriteByte('[')
	for i, v := range t.vals {
		if i > 0 {
			sb.WriteString(", ")
		}
		sb.WriteString(v.String())
	}
	sb.WriteByte(']')
	return sb.String()
}
