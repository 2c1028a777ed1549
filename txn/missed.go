package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// droppedStates begin the names of states that were left behind. Their ids stay in use: a
// checkpoint may hold rows of them, which no other state must take for its own.
const droppedStates = reservedNames + "dropped."

// ReservedState reports whether a state of that name is the engine's own.
func ReservedState(name string) bool { return strings.HasPrefix(name, reservedNames) }

// Drop leaves a state behind: what it holds is never seen again, and its name is free.
func (m *StateMeta) Drop() { m.Name = fmt.Sprintf("%s%d", droppedStates, m.ID) }

// Dropped reports whether a state was left behind.
func (m StateMeta) Dropped() bool { return strings.HasPrefix(m.Name, droppedStates) }

// Missed returns the names of restored states that nobody has registered, if any of them
// holds something that this task would lose: an entry that has not expired, or a timer.
// The engine asks after Open.
func (s *State) Missed() ([]string, error) {
	var names []string
	lost := false
	for _, m := range s.cfg.Known {
		if m.Dropped() || slices.Contains(s.registered, m.Name) {
			continue
		}
		holds, err := s.holds(m)
		if err != nil {
			return nil, fmt.Errorf("look into state %q: %w", m.Name, err)
		}
		lost = lost || holds
		if holds || !ReservedState(m.Name) {
			names = append(names, m.Name)
		}
	}
	if !lost {
		return nil, nil
	}
	return names, nil
}

// holds reports whether the backend has a row of a state that has not expired.
func (s *State) holds(m StateMeta) (bool, error) {
	if s.cfg.Backend.Empty() {
		return false, nil
	}
	for group := s.cfg.From; group < s.cfg.To; group++ {
		prefix := AppendStateKey(nil, group, m.ID, nil)
		err := s.cfg.Backend.Range(prefix, prefixEnd(prefix), func(_, value []byte) error {
			if at, ok := Expiry(m.Kind, value); ok && s.cfg.Now != nil && at <= s.now() {
				return nil
			}
			return errStop
		})
		if errors.Is(err, errStop) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}
