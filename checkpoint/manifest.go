package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/txn"
)

const (
	manifestKind    = "manifest"
	manifestVersion = 2       // 1 did not say how long the checkpoint took
	keyGroupsMax    = 1 << 16 // a state key begins with two bytes of key group
)

// Took says how long a task's part in a checkpoint took, in microseconds. The zero Took
// stands for "not recorded".
type Took struct {
	Align int64 `json:"alignMicros,omitempty"` // from the first barrier of the batch to the last
	Copy  int64 `json:"copyMicros,omitempty"`  // the task stood still, to finish the batch
	Write int64 `json:"writeMicros,omitempty"` // its committer made the batch durable, once it had it
}

// Total returns the sum.
func (t Took) Total() int64 { return t.Align + t.Copy + t.Write }

// Micros returns a duration in microseconds, rounded up, so that only none is 0.
func Micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// EncodeManifest returns the bytes of a manifest. It refuses one that
// DecodeManifest would refuse; the error says everything that is wrong.
func EncodeManifest(m *Manifest) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode manifest of batch %d: %w", m.Batch, err)
	}
	return encodeEnvelope(manifestKind, manifestVersion, m)
}

// DecodeManifest takes a manifest from its bytes. Errors name the object; they wrap
// ErrDamaged, or ErrNewer if that is the reason.
func DecodeManifest(name string, data []byte) (*Manifest, error) {
	m := new(Manifest)
	if _, err := decodeEnvelope(manifestKind, manifestVersion, name, data, m); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest %s: %w: %w", name, ErrDamaged, err)
	}
	return m, nil
}

// ReadManifest reads the manifest that ref names and verifies it against ref.
// Errors name the object; they wrap ErrNotFound if it is missing and ErrDamaged if
// it is not what ref recorded.
func ReadManifest(ctx context.Context, s Store, ref Ref) (*Manifest, error) {
	var buf bytes.Buffer
	if err := CopyObject(ctx, s, &buf, ref.Manifest, ref.Size, ref.CRC32C); err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", ref, err)
	}
	m, err := DecodeManifest(ref.Manifest, buf.Bytes())
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", ref, err)
	}
	if m.Generation != ref.Generation || m.Batch != ref.Batch {
		return nil, fmt.Errorf("read checkpoint %s: %w: manifest %s is of checkpoint %d.%d",
			ref, ErrDamaged, ref.Manifest, m.Generation, m.Batch)
	}
	return m, nil
}

func (m *Manifest) check() error {
	var c checks
	c.text("topology", m.Topology)
	c.text("run id", m.RunID)
	c.text("region", m.Region)
	c.text("engine version", m.Engine)
	c.text("table format", m.Table)
	c.text("graph", m.Graph)
	c.add(m.Generation > 0, "generation is 0, must be above")
	c.add(m.Batch > 0, "batch is 0, must be above")
	c.add(m.UnixMilli >= 0, "time is %d, must not be below 0", m.UnixMilli)
	c.add(m.TookMicros >= 0, "it took %d microseconds, must not be below 0", m.TookMicros)
	c.add(m.KeyGroups > 0 && m.KeyGroups <= keyGroupsMax, "key groups are %d, must be 1 to %d", m.KeyGroups, keyGroupsMax)
	for _, name := range slices.Sorted(maps.Keys(m.Components)) {
		c.text("component", name)
		n := m.Components[name].Parallelism
		c.add(n > 0, "component %q has parallelism %d, must be above 0", name, n)
	}
	type task struct {
		component string
		index     int
	}
	seen := make(map[task]bool, len(m.Tasks))
	for i := range m.Tasks {
		t := &m.Tasks[i]
		what := fmt.Sprintf("task %s/%d", t.Component, t.Index)
		meta, ok := m.Components[t.Component]
		c.add(ok, "%s: the component is not listed", what)
		c.add(t.Index >= 0 && (!ok || t.Index < meta.Parallelism), "%s: the index is not within parallelism %d", what, meta.Parallelism)
		c.add(!seen[task{t.Component, t.Index}], "%s is listed twice", what)
		seen[task{t.Component, t.Index}] = true
		c.add(min(t.Took.Align, t.Took.Copy, t.Took.Write) >= 0, "%s took %+v microseconds, must not be below 0", what, t.Took)
		c.handles(m, t.Handles, what)
		c.files(m, t.Files, what)
		c.states(t.States, what)
		c.positions(t.Positions, what)
	}
	return c.err()
}

func (c *checks) handles(m *Manifest, handles []txn.Handle, what string) {
	var last BatchID
	for _, h := range handles {
		c.add(h.Batch >= last, "%s: the handle of batch %d follows that of batch %d", what, h.Batch, last)
		c.add(h.Batch <= m.Batch && h.Generation <= m.Generation, "%s: the handle of %d.%d is newer than the checkpoint", what, h.Generation, h.Batch)
		last = h.Batch
	}
}

func (c *checks) files(m *Manifest, files []FileRef, what string) {
	var last BatchID
	deltas := false
	for _, f := range files {
		c.object(what+": file", f.Name, f.Size)
		c.add(f.GroupFrom >= 0 && f.GroupFrom < f.GroupTo && f.GroupTo <= m.KeyGroups,
			"%s: file %s counts for key groups [%d,%d) of %d", what, f.Name, f.GroupFrom, f.GroupTo, m.KeyGroups)
		c.add(f.Batch <= m.Batch && f.Generation <= m.Generation, "%s: file %s of %d.%d is newer than the checkpoint", what, f.Name, f.Generation, f.Batch)
		if f.Base {
			c.add(!deltas, "%s: base %s follows a delta", what, f.Name)
			continue
		}
		c.add(!deltas || f.Batch >= last, "%s: delta %s of batch %d follows that of batch %d", what, f.Name, f.Batch, last)
		deltas, last = true, f.Batch
	}
}

func (c *checks) states(states []txn.StateMeta, what string) {
	ids, names := map[uint16]bool{}, map[string]bool{}
	for _, s := range states {
		c.text(what+": state", s.Name)
		c.text(what+": kind of state "+s.Name, s.Kind)
		c.text(what+": codec of state "+s.Name, s.Codec)
		c.add(!ids[s.ID], "%s: two states have the id %d", what, s.ID)
		c.add(!names[s.Name], "%s: two states have the name %q", what, s.Name)
		ids[s.ID], names[s.Name] = true, true
	}
}

func (c *checks) positions(positions []txn.Position, what string) {
	seen := map[txn.PartitionID]bool{}
	for _, p := range positions {
		c.text(what+": partition", string(p.Partition))
		c.add(!seen[p.Partition], "%s: partition %q is listed twice", what, p.Partition)
		seen[p.Partition] = true
	}
}
