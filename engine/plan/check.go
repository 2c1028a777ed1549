package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// check returns every mistake in a graph.
func check(comps []Component, keyGroups int) error {
	var errs []error
	byID := map[string]*Component{}
	for i := range comps {
		c := &comps[i]
		errs = append(errs, checkName(c, byID)...)
		if byID[c.ID] == nil {
			byID[c.ID] = c
		}
		if c.Tasks < 1 {
			errs = append(errs, fmt.Errorf("component %q: %d tasks, at least 1 is needed", c.ID, c.Tasks))
		}
		if c.Role == Keyed && c.Tasks > keyGroups {
			errs = append(errs, fmt.Errorf("component %q: %d tasks cannot share %d key groups: raise topology.key.groups before the first run or use fewer tasks", c.ID, c.Tasks, keyGroups))
		}
	}
	spouts := 0
	for i := range comps {
		c := &comps[i]
		if c.Role == Spout {
			spouts++
			continue
		}
		errs = append(errs, checkInputs(c, byID)...)
	}
	if spouts == 0 {
		errs = append(errs, errors.New("topology has no spout: nothing would ever be emitted"))
	}
	errs = append(errs, checkCycles(comps, byID)...)
	return errors.Join(errs...)
}

// idMax leaves room for the rest of an object's name, in which '.' is written in three
// characters: see checkpoint.DataName.
const idMax = 128

func checkName(c *Component, byID map[string]*Component) []error {
	switch {
	case c.ID == "":
		return []error{errors.New("a component has an empty id")}
	case byID[c.ID] != nil:
		return []error{fmt.Errorf("component %q is defined twice", c.ID)}
	case strings.HasPrefix(c.ID, "__"):
		return []error{fmt.Errorf("component %q: ids that begin with __ are reserved", c.ID)}
	case strings.ContainsFunc(c.ID, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r)
	}) || strings.HasPrefix(c.ID, "."):
		return []error{fmt.Errorf("component %q: ids are made of letters, digits, '-', '_' and '.', and do not begin with '.'", c.ID)}
	case len(c.ID)+2*strings.Count(c.ID, ".") > idMax:
		return []error{fmt.Errorf("component %.40q…: its id is too long for the names of its files: %d characters are allowed, and a '.' counts for three", c.ID, idMax)}
	}
	return nil
}

func checkInputs(c *Component, byID map[string]*Component) []error {
	var errs []error
	if len(c.Inputs) == 0 {
		errs = append(errs, fmt.Errorf("bolt %q has no input: give it a grouping", c.ID))
	}
	var keyKinds []string
	for i, in := range c.Inputs {
		// It would receive every tuple twice, and a keyed bolt under two keys.
		if slices.ContainsFunc(c.Inputs[:i], func(o Input) bool { return o.Component == in.Component && o.Stream == in.Stream }) {
			errs = append(errs, fmt.Errorf("bolt %q reads stream %q of %q twice: give it one grouping", c.ID, in.Stream, in.Component))
			continue
		}
		src := byID[in.Component]
		if src == nil {
			errs = append(errs, fmt.Errorf("bolt %q reads from component %q, which does not exist; there are %s", c.ID, in.Component, names(byID)))
			continue
		}
		s := src.Stream(in.Stream)
		if s == nil {
			errs = append(errs, fmt.Errorf("bolt %q reads stream %q of %q, which declares %s", c.ID, in.Stream, in.Component, streams(src)))
			continue
		}
		fields := in.Fields
		if c.KeyFields != nil {
			fields = append(slices.Clone(fields), c.KeyFields...)
		}
		for _, f := range fields {
			if s.Fields.Index(f) < 0 {
				errs = append(errs, fmt.Errorf("bolt %q: stream %q of %q has no field %q, it has %q", c.ID, in.Stream, in.Component, f, []string(s.Fields)))
			}
		}
		errs = append(errs, checkGrouping(c, in, s)...)
		errs = append(errs, checkCombine(c, in, s))
		if c.Role != Keyed || c.KeyFields != nil {
			continue
		}
		if in.Grouping != txn.ByFields {
			errs = append(errs, fmt.Errorf("keyed bolt %q reads %q without fields grouping, so its keys would be spread over tasks: use FieldsGrouping(%q, …)", c.ID, in.Component, in.Component))
			continue
		}
		kinds := kindsOf(s, in.Fields)
		if keyKinds == nil {
			keyKinds = kinds
		}
		if len(kinds) != len(keyKinds) || !slices.EqualFunc(kinds, keyKinds, mayEqual) {
			errs = append(errs, fmt.Errorf("keyed bolt %q groups its inputs by (%s) and by (%s): all must have the same kinds of key",
				c.ID, strings.Join(keyKinds, ", "), strings.Join(kinds, ", ")))
		}
	}
	return errs
}

// checkGrouping checks one subscription by itself.
func checkGrouping(c *Component, in Input, s *tuple.Stream) []error {
	var errs []error
	switch {
	case in.Grouping.Keyed() && len(in.Fields) == 0:
		errs = append(errs, fmt.Errorf("bolt %q: fields grouping on %q names no field", c.ID, in.Component))
	case !in.Grouping.Keyed() && len(in.Fields) > 0:
		errs = append(errs, fmt.Errorf("bolt %q: the grouping of %q takes no fields, and was given %q", c.ID, in.Component, in.Fields))
	case in.Grouping == txn.Custom && in.Custom == nil:
		errs = append(errs, fmt.Errorf("bolt %q: the custom grouping of %q is nil", c.ID, in.Component))
	case in.Grouping == txn.Direct && !s.Direct:
		errs = append(errs, fmt.Errorf("bolt %q: stream %q of %q is not direct, so it cannot be read by direct grouping: declare it with DeclareDirect", c.ID, in.Stream, in.Component))
	case in.Grouping != txn.Direct && s.Direct:
		errs = append(errs, fmt.Errorf("bolt %q: stream %q of %q is direct: read it by DirectGrouping", c.ID, in.Stream, in.Component))
	}
	for _, f := range in.Fields {
		if i := s.Fields.Index(f); i >= 0 && s.Kinds != nil && s.Kinds[i] == tuple.KindAny && in.Grouping.Keyed() {
			errs = append(errs, fmt.Errorf("bolt %q: field %q of stream %q of %q may hold objects, which cannot be keys: declare its kind", c.ID, f, in.Stream, in.Component))
		}
	}
	return errs
}

// checkCombine checks that tuples of a subscription differ in nothing but the field that
// senders combine.
func checkCombine(c *Component, in Input, s *tuple.Stream) error {
	if in.Combine == 0 {
		return nil
	}
	at := s.Fields.Index(in.CombineField)
	switch {
	case in.Combine > txn.CombineMax:
		return fmt.Errorf("bolt %q: %d is no way to combine field %q of %q", c.ID, in.Combine, in.CombineField, in.Component)
	case !in.Grouping.Keyed():
		return fmt.Errorf("bolt %q: field %q of %q can be combined only by a grouping by fields", c.ID, in.CombineField, in.Component)
	case at < 0:
		return fmt.Errorf("bolt %q: stream %q of %q has no field %q to combine, it has %q", c.ID, in.Stream, in.Component, in.CombineField, []string(s.Fields))
	case s.Kinds != nil && s.Kinds[at] != tuple.KindInt64 && s.Kinds[at] != tuple.KindAny:
		return fmt.Errorf("bolt %q: field %q of %q is declared as %s, and only int64 can be combined", c.ID, in.CombineField, in.Component, s.Kinds[at])
	}
	for _, f := range s.Fields {
		if (f == in.CombineField) == slices.Contains(in.Fields, f) {
			return fmt.Errorf("bolt %q: to combine field %q of %q, group by all other fields and by no more: it has %q and is grouped by %q",
				c.ID, in.CombineField, in.Component, []string(s.Fields), in.Fields)
		}
	}
	return nil
}

// kindsOf returns the kinds of a key as text: string and bytes are one kind of key,
// and an untyped field may hold every kind.
func kindsOf(s *tuple.Stream, fields []string) []string {
	kinds := make([]string, len(fields))
	for i, f := range fields {
		at := s.Fields.Index(f)
		switch {
		case at < 0 || s.Kinds == nil || s.Kinds[at] == tuple.KindAny:
			kinds[i] = "any"
		case s.Kinds[at] == tuple.KindString || s.Kinds[at] == tuple.KindBytes:
			kinds[i] = "text"
		default:
			kinds[i] = s.Kinds[at].String()
		}
	}
	return kinds
}

func mayEqual(a, b string) bool { return a == b || a == "any" || b == "any" }

func names(byID map[string]*Component) string {
	var ids []string
	for id := range byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return fmt.Sprintf("%q", ids)
}

func streams(c *Component) string {
	var ids []string
	for _, s := range c.Streams {
		if !strings.HasPrefix(s.ID, "__") {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) == 0 {
		return "no stream: give it a DeclareOutputFields method"
	}
	return fmt.Sprintf("%q", ids)
}

// checkCycles refuses loops: with bounded queues and barriers they lock up.
func checkCycles(comps []Component, byID map[string]*Component) []error {
	const (
		unseen = iota
		open
		done
	)
	state := map[string]int{}
	var errs []error
	var visit func(c *Component, path []string)
	visit = func(c *Component, path []string) {
		path = append(path, c.ID)
		switch state[c.ID] {
		case done:
			return
		case open:
			loop := path[slices.Index(path, c.ID):]
			slices.Reverse(loop)
			errs = append(errs, fmt.Errorf("components %s form a cycle, which barriers cannot pass", strings.Join(loop, " → ")))
			return
		}
		state[c.ID] = open
		for i, in := range c.Inputs {
			again := slices.ContainsFunc(c.Inputs[:i], func(o Input) bool { return o.Component == in.Component })
			if src := byID[in.Component]; src != nil && !again {
				visit(src, slices.Clone(path))
			}
		}
		state[c.ID] = done
	}
	for i := range comps {
		visit(&comps[i], nil)
	}
	return errs
}
