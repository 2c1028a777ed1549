package master

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/txn"
)

// Check returns what is wrong with the names in Map and Drop, whatever a checkpoint holds.
func (s Start) Check() error {
	var errs []error
	for _, was := range slices.Sorted(maps.Keys(s.Map)) {
		component, name, isState := strings.Cut(was, "/")
		to, as, toState := strings.Cut(s.Map[was], "/")
		switch {
		case isState != toState, isState && component != to:
			errs = append(errs, fmt.Errorf("map %s=%s: a state stays one of its component: say COMPONENT/OLD=COMPONENT/NEW, with the name that the component has now", was, s.Map[was]))
		case component == "", to == "", isState && (name == "" || as == ""):
			errs = append(errs, fmt.Errorf("map %s=%s: a name is empty", was, s.Map[was]))
		case isState && txn.ReservedState(as):
			errs = append(errs, fmt.Errorf("map %s=%s: states of that name are the engine's own", was, s.Map[was]))
		}
	}
	for _, d := range s.Drop {
		if component, name, isState := strings.Cut(d, "/"); component == "" || isState && name == "" {
			errs = append(errs, fmt.Errorf("drop %s: it must be COMPONENT or COMPONENT/STATE", d))
		}
	}
	return errors.Join(errs...)
}

// restate renames and drops keyed states of a component, which has its new name already.
func (s Start) restate(component string, states []txn.StateMeta) ([]txn.StateMeta, error) {
	states = slices.Clone(states)
	seen := map[string]bool{}
	for i := range states {
		m := &states[i]
		was := component + "/" + m.Name
		switch to, mapped := s.Map[was]; {
		case m.Dropped():
			continue
		case slices.Contains(s.Drop, was):
			m.Drop()
			continue
		case mapped:
			m.Name = strings.TrimPrefix(to, component+"/")
		}
		if seen[m.Name] {
			return nil, fmt.Errorf("component %q: two states would be %q: map only one of them to it, or leave one behind (--drop %s/NAME)", component, m.Name, component)
		}
		seen[m.Name] = true
	}
	return states, nil
}
