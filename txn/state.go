package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/isobar-io/isobar/tuple"
)

// State is the keyed state of one task: a set of named states, each a table in
// memory over what is in the task's store. All operations are about the current
// key, which the engine sets before each Execute.
//
// It belongs to the task's goroutine.
type State struct {
	cfg    StateConfig
	tables []stateTable
	timers *Timers  // nil unless the component uses timers
	names  []string // of the tables
	// registered are the names of all states that were, the engine's own too.
	registered []string
	metas      []StateMeta
	errs       []error
	sealed     bool

	sweepers []*sweeper // of the states with a TTL

	open    BatchID // the mark of what is written now
	marked  BatchID // the mark of what is to be copied, or noMark
	cutting *Marked // nil if nothing is
	applied BatchID // the newest batch that the backend holds
	merges  bool    // something is merged, so that inFlight is needed
	// Copied or being copied, and not applied as far as is known; in order.
	inFlight []*Marked
	held     int64 // bytes of entries in memory
	hand     int   // the table that evict looks at

	// The current key: its hash, and its encoding split into tag and payload, so that
	// a single text needs no copy.
	hash     uint64
	tag      byte
	payload  string
	selected uint64 // goes up when the key changes
	scratch  []byte
}

// StateConfig is what the engine tells a State.
type StateConfig struct {
	Component string
	Groups    int // key groups of the topology
	From, To  int // the task owns key groups [From, To)
	// Known are the states of the restored checkpoint.
	Known   []StateMeta
	Backend Backend
	// CacheBytes bounds the clean entries kept in memory.
	CacheBytes int64
	// Volatile says that no cut is ever applied to the backend.
	Volatile bool
	// Now returns the processing time in milliseconds since 1970, which never goes
	// back; it may be called from any goroutine. States with a TTL need it.
	Now func() int64
}

// ErrForeignKey is wrapped by errors about keys that belong to another task.
var ErrForeignKey = errors.New("the key belongs to another task")

// NewState returns a State without any table. The engine and tests use it.
func NewState(c StateConfig) *State {
	return &State{cfg: c, metas: append([]StateMeta(nil), c.Known...), open: openMark, marked: noMark, selected: 1}
}

// stateTable is a table of any value type.
type stateTable interface {
	changes() int
	changedKey(i int, dst []byte) (hash uint64, tag byte, payload []byte)
	mark() (changes int)
	copy(limit int) (copied int)
	evict(steps int) (looked int, round bool)
	collect(dst []Record) ([]Record, error)
}

// reservedNames begin the names of states that are not the user's.
const reservedNames = "isobar."

// register adds a table, if it is not nil, and returns the id of its state.
func (s *State) register(meta StateMeta, t stateTable) uint16 {
	if s.sealed {
		panic(fmt.Sprintf("component %q registers state %q after Open: register all states in Open", s.cfg.Component, meta.Name))
	}
	s.checkText(meta, "name", meta.Name)
	s.checkText(meta, "name of its codec", meta.Codec)
	if t != nil && ReservedState(meta.Name) {
		s.errs = append(s.errs, fmt.Errorf("state %q: names that begin with %q are the engine's own", meta.Name, reservedNames))
	}
	if slices.Contains(s.registered, meta.Name) {
		s.errs = append(s.errs, fmt.Errorf("state %q is registered twice", meta.Name))
	}
	s.registered = append(s.registered, meta.Name)
	if t != nil {
		s.tables = append(s.tables, t)
		s.names = append(s.names, meta.Name)
	}
	next := uint16(1)
	for i := range s.metas {
		m := &s.metas[i]
		if m.Name != meta.Name {
			next = max(next, m.ID+1)
			continue
		}
		switch {
		case i >= len(s.cfg.Known): // a second time
		case m.Kind != meta.Kind || m.Codec != meta.Codec:
			s.errs = append(s.errs, fmt.Errorf("state %q is registered as %s of %s, but the checkpoint holds it as %s of %s: register it as it was, or leave that behind (--drop %s/%s)",
				meta.Name, meta.Kind, meta.Codec, m.Kind, m.Codec, s.cfg.Component, meta.Name))
		case m.Version > meta.Version:
			s.errs = append(s.errs, fmt.Errorf("state %q: the checkpoint was written by version %d of codec %s, this is version %d",
				meta.Name, m.Version, m.Codec, meta.Version))
		case m.Version < meta.Version && strings.HasPrefix(m.Kind, "aggregate"):
			s.errs = append(s.errs, fmt.Errorf("state %q: the checkpoint was written by version %d of codec %s, this is version %d, and the values of an aggregate do not tell their version: give the new one another name and keep this one, or leave this one behind (--drop %s/%s)",
				meta.Name, m.Version, m.Codec, meta.Version, s.cfg.Component, meta.Name))
		}
		m.Version = meta.Version
		return m.ID
	}
	meta.ID = next
	s.metas = append(s.metas, meta)
	return next
}

// checkText refuses what no checkpoint could keep.
func (s *State) checkText(meta StateMeta, what, text string) {
	if text == "" || !utf8.ValidString(text) {
		s.errs = append(s.errs, fmt.Errorf("state %q: the %s is %q: it must be valid UTF-8, and not empty", meta.Name, what, text))
	}
}

// Seal ends registration and returns what was wrong with it. The engine calls it
// after Open.
func (s *State) Seal() error {
	s.sealed = true
	if err := errors.Join(s.errs...); err != nil {
		return fmt.Errorf("component %q: %w", s.cfg.Component, err)
	}
	return nil
}

// Metas describes the states, in order of their ids.
func (s *State) Metas() []StateMeta { return append([]StateMeta(nil), s.metas...) }

// SetKey makes vals the current key.
func (s *State) SetKey(vals ...tuple.Value) error {
	h, ok := tuple.HashKey(vals)
	if !ok {
		return fmt.Errorf("component %q: set key %v: %w", s.cfg.Component, vals, tuple.ErrKeyKind)
	}
	return s.Select(vals, h)
}

// SelectCarried makes v, with the hash by which it was sent to this task, the current
// key, until the next call; the key refers to v. The engine calls it before each
// Execute. The router and the owner of a key group use the same rule, so the key
// cannot be foreign.
func (s *State) SelectCarried(v tuple.Value, hash uint64) error {
	if text, ok := v.Text(); ok {
		s.current(hash, tuple.TagText, text)
		return nil
	}
	return s.Select([]tuple.Value{v}, hash)
}

// Select makes vals, whose hash is given, the current key. The key refers to vals
// until the next Select.
func (s *State) Select(vals []tuple.Value, hash uint64) error {
	if len(vals) == 1 {
		if text, ok := vals[0].Text(); ok {
			s.current(hash, tuple.TagText, text)
			return s.owned()
		}
	}
	enc, err := tuple.AppendKey(s.scratch[:0], vals...)
	if err != nil {
		return fmt.Errorf("component %q: key %v: %w", s.cfg.Component, vals, err)
	}
	s.scratch = enc
	if len(enc) == 0 { // a key of no fields: one key for everything
		s.current(hash, 0, "")
		return s.owned()
	}
	s.current(hash, enc[0], textOf(enc[1:]))
	return s.owned()
}

// current makes a key the current one.
func (s *State) current(hash uint64, tag byte, payload string) {
	s.hash, s.tag, s.payload = hash, tag, payload
	s.selected++
}

func (s *State) owned() error {
	if g := tuple.KeyGroup(s.hash, s.cfg.Groups); g < s.cfg.From || g >= s.cfg.To {
		return fmt.Errorf("component %q: key %s is in key group %d and this task owns %d to %d: %w: group its input by the same fields as its key",
			s.cfg.Component, tuple.FormatKey(s.appendKey(nil)), g, s.cfg.From, s.cfg.To-1, ErrForeignKey)
	}
	return nil
}

// appendKey appends the encoding of the current key.
// It panics if there is none, which is a mistake of the component.
func (s *State) appendKey(dst []byte) []byte {
	if err := s.hasKey(); err != nil {
		panic(err)
	}
	return appendTagged(dst, s.tag, s.payload)
}

func appendTagged(dst []byte, tag byte, payload string) []byte {
	if tag == 0 {
		return dst
	}
	return append(append(dst, tag), payload...)
}

// noKey is the tag of no key at all.
const noKey = 0xff

// ClearKey leaves the state without a current key, until the next SetKey: to use it
// is an error. The engine calls it before a tick tuple.
func (s *State) ClearKey() { s.current(0, noKey, "") }

// hasKey returns an error if there is no current key.
func (s *State) hasKey() error {
	if s.tag == noKey {
		return fmt.Errorf("component %q: there is no current key, because a tick tuple has none: use SetKey", s.cfg.Component)
	}
	return nil
}

// Changed returns the keys written since the last Cut.
func (s *State) Changed() *Changed {
	c := &Changed{state: s}
	if len(s.tables) == 1 {
		c.n = s.tables[0].changes()
		return c
	}
	type key struct {
		tag     byte
		payload string
	}
	seen := map[key]bool{}
	for _, t := range s.tables {
		for i := range t.changes() {
			h, tag, payload := t.changedKey(i, c.payload[:0])
			c.payload = payload
			if k := (key{tag, string(payload)}); !seen[k] {
				seen[k] = true
				c.keys = append(c.keys, changedKey{h, tag, k.payload})
			}
		}
	}
	c.n = len(c.keys)
	return c
}

type changedKey struct {
	hash    uint64
	tag     byte
	payload string
}

// Changed iterates over the keys written in a batch, in no order.
type Changed struct {
	state   *State
	keys    []changedKey // nil: those of the only table
	n, i    int
	payload []byte // of the current key
	texts   []byte // room for the keys that were asked for
	buf     [1]tuple.Value
}

// Len returns how many keys there are.
func (c *Changed) Len() int { return c.n }

// Next makes the next key the current one of the state; false at the end.
func (c *Changed) Next() bool {
	if c.i >= c.n {
		return false
	}
	s := c.state
	if c.keys != nil {
		k := c.keys[c.i]
		s.current(k.hash, k.tag, k.payload)
	} else {
		hash, tag, payload := s.tables[0].changedKey(c.i, c.payload[:0])
		c.payload = payload
		s.current(hash, tag, textOf(payload))
	}
	c.i++
	return true
}

// Key returns the current key's values. Text comes as strings. The slice is valid
// until the next call.
func (c *Changed) Key() []tuple.Value {
	s := c.state
	if s.tag == tuple.TagText {
		c.buf[0] = tuple.String(c.lasting(s.payload))
		return c.buf[:]
	}
	vals, err := tuple.DecodeKey(s.appendKey(nil))
	if err != nil {
		panic("broken invariant: " + err.Error())
	}
	return vals
}

// lasting returns a copy of text that never changes. Many share an allocation.
func (c *Changed) lasting(text string) string {
	if cap(c.texts)-len(c.texts) < len(text) {
		c.texts = make([]byte, 0, max(textsBytes, len(text)))
	}
	at := len(c.texts)
	c.texts = append(c.texts, text...)
	return textOf(c.texts[at:])
}

// textsBytes is how much room for texts is made at once: one that is kept keeps it all.
const textsBytes = 1 << 10

// Live returns a view of the state as it is now, for topologies without barriers
// and for tests. It holds only what is in memory.
func (s *State) Live() View { return liveView{s} }
