package metamorphic

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// rec is a record, which travels as a tuple.
type rec struct {
	K string // a key
	G int64  // another, coarser one
	N int64  // above 0 in the input
	S string
	T int64 // event time in milliseconds
}

func (r rec) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// hash is by the content alone, so that the model and every task agree on it.
func (r rec) hash() uint64 { return hashOf(r.String()) }

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	v := h.Sum64()
	return v ^ v>>29
}

func recCodec() txn.Codec[rec] { return txn.JSONCodec[rec]("rec", 1) }

// shape says how records travel on a stream.
type shape struct {
	width int  // how many fields: k; k and n; or all
	raw   bool // texts travel as bytes
	typed bool // the fields have kinds
}

const whole = 5 // the width of a complete record

func (s shape) String() string {
	return fmt.Sprint(s.width, map[bool]string{true: " raw"}[s.raw], map[bool]string{true: " typed"}[s.typed])
}

var fieldsByWidth = map[int][]string{1: {"k"}, 2: {"k", "n"}, whole: {"k", "g", "n", "s", "t"}}

func (s shape) declare(d *txn.OutputDeclarer, id string, direct bool) {
	fields := fieldsByWidth[s.width]
	switch {
	case direct:
		d.DeclareDirect(id, fields...)
	case s.typed:
		var typed []txn.Field
		for i, v := range s.values(rec{}) {
			typed = append(typed, txn.Field{Name: fields[i], Kind: v.Kind()})
		}
		d.DeclareTyped(id, typed...)
	default:
		d.DeclareStream(id, fields...)
	}
}

// values returns the fields of r that travel.
func (s shape) values(r rec) []tuple.Value {
	text := tuple.String
	if s.raw {
		text = func(s string) tuple.Value { return tuple.Bytes([]byte(s)) }
	}
	switch s.width {
	case 1:
		return []tuple.Value{text(r.K)}
	case 2:
		return []tuple.Value{text(r.K), tuple.Int64(r.N)}
	}
	return []tuple.Value{text(r.K), tuple.Int64(r.G), tuple.Int64(r.N), text(r.S), tuple.Int64(r.T)}
}

// read makes a record of the values of a tuple.
func read(vals []tuple.Value) rec {
	switch len(vals) {
	case 1:
		return rec{K: textOf(vals[0]), N: 1}
	case 2:
		return rec{K: textOf(vals[0]), N: vals[1].Int64()}
	}
	return rec{K: textOf(vals[0]), G: vals[1].Int64(), N: vals[2].Int64(), S: textOf(vals[3]), T: vals[4].Int64()}
}

func textOf(v tuple.Value) string {
	if v.Kind() == tuple.KindBytes {
		return string(v.Bytes())
	}
	return v.Str()
}

// trim returns what arrives of r.
func (s shape) trim(r rec) rec { return read(s.values(r)) }

func (s shape) emit(out *txn.Collector, stream string, r rec) {
	vals := s.values(r)
	switch {
	case stream != tuple.DefaultStream:
		out.EmitTo(stream, vals...)
	case s.width == 1:
		out.Emit1(vals[0])
	case s.width == 2:
		out.Emit2(vals[0], vals[1])
	case r.N%8 == 0:
		out.EmitTasks(stream, vals...)
	default:
		out.Emit(vals...)
	}
}

// keyBy names the fields that a node is keyed by.
type keyBy []string

// of returns a record that holds nothing but the key of r.
func (k keyBy) of(r rec) (key rec) {
	if slices.Contains(k, "k") {
		key.K = r.K
	}
	if slices.Contains(k, "g") {
		key.G = r.G
	}
	return key
}

// read makes a record of the values of a key.
func (k keyBy) read(vals []tuple.Value) (key rec) {
	for i, f := range k {
		switch f {
		case "k":
			key.K = textOf(vals[i])
		case "g":
			key.G = vals[i].Int64()
		}
	}
	return key
}

// values returns the values of a key.
func (k keyBy) values(key rec) (vals []tuple.Value) {
	for _, f := range k {
		switch f {
		case "k":
			vals = append(vals, tuple.String(key.K))
		case "g":
			vals = append(vals, tuple.Int64(key.G))
		}
	}
	return vals
}

// group returns the records of each key.
func (k keyBy) group(rs []rec) map[rec][]rec {
	byKey := map[rec][]rec{}
	for _, r := range rs {
		byKey[k.of(r)] = append(byKey[k.of(r)], r)
	}
	return byKey
}

func at(t int64) time.Time { return time.UnixMilli(t) }

// outcome is what a sink has shown in the end: lines, and how often each.
type outcome map[string]int

func outcomeOf(rs []rec) outcome {
	o := outcome{}
	for _, r := range rs {
		o[r.String()]++
	}
	return o
}

// differences lists the lines that two outcomes do not share; not all, if there are
// many. With atLeast there may be more of each line than wanted.
func (want outcome) differences(got outcome, atLeast bool) string {
	all := maps.Clone(want)
	maps.Copy(all, got)
	var diffs []string
	for _, line := range slices.Sorted(maps.Keys(all)) {
		if n, m := want[line], got[line]; n != m && (!atLeast || m < n) {
			diffs = append(diffs, fmt.Sprintf("  want %d, got %d: %s", n, m, line))
		}
	}
	const most = 12
	if n := len(diffs); n > most {
		diffs = append(diffs[:most], fmt.Sprintf("  and %d lines more", n-most))
	}
	return strings.Join(diffs, "\n")
}
