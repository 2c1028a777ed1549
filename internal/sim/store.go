package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// object is what the store keeps under a name; its value is never changed.
type object struct {
	value any // *checkpoint.Manifest or *stateFile
	at    time.Duration
}

// store is the checkpoint store. A version of its head depends on nothing but the
// head's bytes, as in S3, so that bytes which came back would be taken for ones
// that never left.
type store struct {
	w           *world
	objects     map[string]object
	head        *checkpoint.Head
	version     checkpoint.Version
	outageUntil time.Duration
}

func newStore(w *world) *store { return &store{w: w, objects: map[string]object{}} }

func (s *store) reachable() bool {
	return s.w.now >= s.outageUntil && s.w.on.reaches(toStore) || s.w.now >= s.w.faults.Until
}

// put stores an object. Repeating it with the same value is no error.
func (s *store) put(name string, value any, reply func(error)) {
	request(s.w, s.reachable(), func() (struct{}, error) {
		if old, ok := s.objects[name]; ok && old.value != value {
			s.w.violate("object %s was put again with other content", name)
			return struct{}{}, checkpoint.ErrExists
		}
		if err := checkpoint.ValidName(name); err != nil {
			s.w.violate("put: %v", err)
		}
		s.objects[name] = object{value, s.w.now}
		return struct{}{}, nil
	}, func(_ struct{}, err error) { reply(err) })
}

// get reads an object.
func (s *store) get(name string, reply func(any, error)) {
	request(s.w, s.reachable(), func() (any, error) {
		o, ok := s.objects[name]
		if !ok {
			return nil, fmt.Errorf("object %s: %w", name, checkpoint.ErrNotFound)
		}
		return o.value, nil
	}, reply)
}

// remove deletes an object; whether that succeeded nobody waits to hear.
func (s *store) remove(name string) {
	request(s.w, s.reachable(), func() (struct{}, error) {
		delete(s.objects, name)
		return struct{}{}, nil
	}, func(struct{}, error) {})
}

// list returns all objects in name order. It happens at once: a sweep takes long
// enough between its other steps.
func (s *store) list() []checkpoint.ObjectInfo {
	var infos []checkpoint.ObjectInfo
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		infos = append(infos, checkpoint.ObjectInfo{Name: name, Size: 1, UnixMilli: s.objects[name].at.Milliseconds()})
	}
	return infos
}

type headRead struct {
	head    *checkpoint.Head // nil: there is none
	version checkpoint.Version
}

func (s *store) readHead(reply func(headRead, error)) {
	request(s.w, s.reachable(), func() (headRead, error) {
		if s.head == nil {
			return headRead{}, nil
		}
		return headRead{s.head.Clone(), s.version}, nil
	}, reply)
}

// swapHead compares and swaps the head. ErrHeadMoved says that nothing was written.
func (s *store) swapHead(old checkpoint.Version, h *checkpoint.Head, reply func(checkpoint.Version, error)) {
	data, err := checkpoint.EncodeHead(h)
	if err != nil {
		s.w.violate("a head that cannot be encoded: %v", err)
		return
	}
	h = h.Clone()
	request(s.w, s.reachable(), func() (checkpoint.Version, error) {
		if old != s.version && s.w.is(HeadCompare) {
			return "", checkpoint.ErrHeadMoved
		}
		sum := fnv.New64a()
		sum.Write(data)
		version := checkpoint.Version(fmt.Sprintf("%016x", sum.Sum64()))
		s.w.tracef("store: head %s by %s: %s", version, h.Writer, headString(h))
		s.w.check.headSwapped(s.head, h, version)
		s.head, s.version = h, version
		return version, nil
	}, reply)
}

func headString(h *checkpoint.Head) string {
	var sb strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.Regions)) {
		fmt.Fprintf(&sb, " %s generation %d %v", name, h.Regions[name].Generation, h.Regions[name].Retained)
	}
	return sb.String()
}
