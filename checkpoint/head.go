package checkpoint

import (
	"fmt"
	"maps"
	"slices"
)

const (
	headKind = "head"
	// 1 had no superseded checkpoints, and pins without region and name; 2 did not say what
	// is settled.
	headVersion = 3
)

// EncodeHead returns the bytes of a head. It refuses one that DecodeHead would
// refuse; the error says everything that is wrong.
func EncodeHead(h *Head) ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("encode head of topology %q: %w", h.Topology, err)
	}
	return encodeEnvelope(headKind, headVersion, h)
}

// HeadName returns what messages call the head of s: the name that s has for it, if it has a
// method HeadName, or else "head".
func HeadName(s Store) string {
	if n, ok := s.(interface{ HeadName() string }); ok {
		return n.HeadName()
	}
	return headKind
}

// DecodeHead takes a head from its bytes; name says in errors where they are from.
// Errors wrap ErrDamaged, or ErrNewer if that is the reason.
func DecodeHead(name string, data []byte) (*Head, error) {
	h := new(Head)
	version, err := decodeEnvelope(headKind, headVersion, name, data, h)
	if err != nil {
		return nil, err
	}
	if version < 3 {
		h.distrust()
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("head %s: %w: %w", name, ErrDamaged, err)
	}
	return h, nil
}

func (h *Head) check() error {
	var c checks
	c.text("topology", h.Topology)
	c.text("run id", h.RunID)
	c.text("writer", h.Writer)
	for _, name := range slices.Sorted(maps.Keys(h.Regions)) {
		r := h.Regions[name]
		c.text("region", name)
		c.add(r.Generation <= h.Generation, "region %q has generation %d, the topology has %d", name, r.Generation, h.Generation)
		var last Ref
		for _, ref := range r.Retained {
			c.ref(fmt.Sprintf("region %q: checkpoint %s", name, ref), ref)
			c.add(ref.Generation <= r.Generation, "region %q has generation %d, its checkpoint is %s", name, r.Generation, ref)
			c.add(ref.Generation > last.Generation || ref.Generation == last.Generation && ref.Batch > last.Batch,
				"region %q: checkpoint %s follows %s", name, ref, last)
			last = ref
		}
		for _, ref := range r.Superseded {
			c.ref(fmt.Sprintf("region %q: superseded checkpoint %s", name, ref), ref)
			c.add(ref.Generation < r.Generation, "region %q has generation %d, its superseded checkpoint is %s", name, r.Generation, ref)
		}
		c.add(r.Settled <= last.Batch, "region %q is settled up to batch %d, its current checkpoint is %s", name, r.Settled, last)
		c.add(r.StartedAt <= r.Generation && (r.Started == "") == (r.StartedAt == 0),
			"region %q has generation %d, its start %q has given it %d", name, r.Generation, r.Started, r.StartedAt)
		for _, manifest := range r.Unsettled {
			c.object(fmt.Sprintf("region %q: unsettled checkpoint", name), manifest, 1)
		}
	}
	names := map[string]bool{}
	for _, p := range h.Pins {
		c.ref(fmt.Sprintf("pin %s", p), p.Ref)
		key := p.Region + "/" + p.Name
		c.add(p.Name == "" || !names[key], "region %q has two savepoints %q", p.Region, p.Name)
		names[key] = true
	}
	return c.err()
}

func (c *checks) ref(what string, r Ref) {
	c.object(what, r.Manifest, r.Size)
	c.add(r.Generation > 0 && r.Batch > 0, "%s: generation and batch must be above 0", what)
	c.add(r.UnixMilli >= 0, "%s: time is %d, must not be below 0", what, r.UnixMilli)
}
