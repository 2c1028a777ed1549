// Package checkpoint decides when a checkpoint is complete, and says what one is
// made of: manifests, the head, and the store that holds them.
//
// The Coordinator and the Head Mover are pure: events in, actions out, time as a
// value. Adapters in the folders below hold the stores.
package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/txn"
)

type (
	// BatchID numbers batches; see [tuple.BatchID].
	BatchID = txn.BatchID
	// Generation numbers incarnations of a run; see [tuple.Generation].
	Generation = txn.Generation
	// TaskID numbers the tasks of a topology.
	TaskID int
)

// TableFormat names the format of the files that FileRef stands for: tables of
// Pebble's format 7 with the keys and values described in docs/format/delta.md.
const TableFormat = "pebble-v7"

// FileRef names one object of keyed state in the store: an SST whose keys are state
// keys (see txn.AppendStateKey).
type FileRef struct {
	Name string `json:"name"` // object name in the store
	// Base marks the first files of a chain, which need nothing older; the others
	// are deltas of one batch each.
	Base       bool       `json:"base,omitempty"`
	Batch      BatchID    `json:"batch"` // a delta: its batch; a base: the last batch it includes
	Generation Generation `json:"generation"`
	Size       int64      `json:"size"`
	CRC32C     uint32     `json:"crc32c"` // Castagnoli, over all bytes
	// The file counts for key groups in [GroupFrom, GroupTo) only.
	GroupFrom int `json:"groupFrom"`
	GroupTo   int `json:"groupTo"`
}

// TaskSnapshot is what one task contributes to a checkpoint.
type TaskSnapshot struct {
	Component string `json:"component"`
	Index     int    `json:"index"` // task index within the component
	// Handles are those of every batch whose AckCommit is not yet confirmed, in
	// batch order, and in any case the newest one.
	Handles []txn.Handle `json:"handles,omitempty"`
	// Files hold the keyed state: bases, then deltas in the order to apply.
	Files []FileRef `json:"files,omitempty"`
	// States describes the keyed state of the component.
	States []txn.StateMeta `json:"states,omitempty"`
	// Positions are those of all partitions that the task has ever read.
	Positions []txn.Position `json:"positions,omitempty"`
	// Finished marks a spout task that has emitted all its input.
	Finished bool `json:"finished,omitempty"`
	// Took says how long the task's part in the checkpoint took.
	Took Took `json:"took,omitzero"`
}

// Ref names one complete checkpoint.
type Ref struct {
	Generation Generation `json:"generation"`
	Batch      BatchID    `json:"batch"`
	Manifest   string     `json:"manifest"` // object name
	Size       int64      `json:"size"`
	CRC32C     uint32     `json:"crc32c"`
	UnixMilli  int64      `json:"unixMilli"`
	// Ended is set on a checkpoint taken after all input had ended and everything
	// that waited for more had been flushed.
	Ended bool `json:"ended,omitempty"`
}

// String returns the checkpoint's name: generation.batch.
func (r Ref) String() string { return fmt.Sprintf("%d.%d", r.Generation, r.Batch) }

// ParseRef takes a checkpoint's name apart.
func ParseRef(name string) (g Generation, n BatchID, err error) {
	left, right, ok := strings.Cut(name, ".")
	a, err1 := strconv.ParseUint(left, 10, 64)
	b, err2 := strconv.ParseUint(right, 10, 64)
	if !ok || err1 != nil || err2 != nil || a == 0 || b == 0 {
		return 0, 0, fmt.Errorf("%q is not the name of a checkpoint: it is GENERATION.BATCH, such as 3.17", name)
	}
	return Generation(a), BatchID(b), nil
}

// RegionHead is the part of the head that belongs to one region.
type RegionHead struct {
	Generation Generation `json:"generation"` // the generation that may write
	// Retained are the checkpoints that can be gone back to, oldest first; the last
	// is the current one. None before the first commit.
	Retained []Ref `json:"retained"`
	// Superseded are checkpoints that a rollback has undone. They are kept until they
	// are pruned, so that it can be undone too.
	Superseded []Ref `json:"superseded,omitempty"`
	// Settled is the newest batch on the way to the current checkpoint of which is known
	// that everything up to it is published: every AckCommit was confirmed.
	Settled BatchID `json:"settled,omitempty"`
	// Unsettled are the manifests of kept checkpoints that a rollback has undone before
	// everything that they list was known to be published. Who goes on from one leaves its
	// transactions behind.
	Unsettled []string `json:"unsettled,omitempty"`
	// Started names the start that was the last to say what the region goes on from, if it
	// has a name, and StartedAt is the generation that it gave the region. To start again
	// under the same name is to go on from the current checkpoint.
	Started   string     `json:"started,omitempty"`
	StartedAt Generation `json:"startedAt,omitempty"`
}

// Pin keeps a checkpoint whatever becomes of the retained ones.
type Pin struct {
	Ref
	Region string `json:"region"`
	// Name is the operator's name of a savepoint; empty for a pin without.
	Name string `json:"name,omitempty"`
}

// Current returns the newest complete checkpoint, or nil.
func (r RegionHead) Current() *Ref {
	if len(r.Retained) == 0 {
		return nil
	}
	return &r.Retained[len(r.Retained)-1]
}

// Head is the one small object per topology that names what is committed. Moving
// it by compare-and-swap is the commit point.
type Head struct {
	Topology   string                `json:"topology"`
	RunID      string                `json:"runId"`      // names the transactions of this line of checkpoints
	Generation Generation            `json:"generation"` // the highest ever given to a region
	Regions    map[string]RegionHead `json:"regions"`
	Pins       []Pin                 `json:"pins,omitempty"`
	// Writer is different in every version that a topology master has written, so that
	// it recognises its own after an unknown outcome.
	Writer string `json:"writer"`
	// Editor is different in every version that an operator has edited: of the version
	// that Writer has written, unless the edit has raised the generation.
	Editor string `json:"editor,omitempty"`
}

// Clone returns a copy that shares nothing with h.
func (h *Head) Clone() *Head {
	c := *h
	c.Pins = append([]Pin(nil), h.Pins...)
	c.Regions = make(map[string]RegionHead, len(h.Regions))
	for name, r := range h.Regions {
		r.Retained = append([]Ref(nil), r.Retained...)
		r.Superseded = append([]Ref(nil), r.Superseded...)
		r.Unsettled = append([]string(nil), r.Unsettled...)
		c.Regions[name] = r
	}
	return &c
}

// Kept returns every checkpoint of a region that can be gone back to, each once: the
// retained ones, oldest first, then the superseded and the pinned ones.
func (h *Head) Kept(region string) []Ref {
	var kept []Ref
	add := func(ref Ref) {
		if !slices.ContainsFunc(kept, func(k Ref) bool { return k.Manifest == ref.Manifest }) {
			kept = append(kept, ref)
		}
	}
	for _, ref := range h.Regions[region].Retained {
		add(ref)
	}
	for _, ref := range h.Regions[region].Superseded {
		add(ref)
	}
	for _, p := range h.Pins {
		if p.Region == region {
			add(p.Ref)
		}
	}
	return kept
}

// Find returns the kept checkpoint of that generation and batch, and its region. The
// generations of regions differ, so there is at most one.
func (h *Head) Find(g Generation, n BatchID) (region string, ref Ref, ok bool) {
	for name := range h.Regions {
		for _, ref := range h.Kept(name) {
			if ref.Generation == g && ref.Batch == n {
				return name, ref, true
			}
		}
	}
	return "", Ref{}, false
}

// Oldest returns the lowest batch of a region that can be gone back to, 0 if there is
// none: what its sources still have to be able to read again.
func (h *Head) Oldest(region string) BatchID {
	oldest := BatchID(0)
	for i, ref := range h.Kept(region) {
		if i == 0 || ref.Batch < oldest {
			oldest = ref.Batch
		}
	}
	return oldest
}

// ComponentMeta records how a component was run.
type ComponentMeta struct {
	Parallelism int  `json:"parallelism"`
	Keyed       bool `json:"keyed,omitempty"`
}

// Manifest describes one complete checkpoint of one region.
type Manifest struct {
	Topology   string     `json:"topology"`
	RunID      string     `json:"runId"`
	Region     string     `json:"region"`
	Generation Generation `json:"generation"`
	Batch      BatchID    `json:"batch"`
	Ended      bool       `json:"ended,omitempty"`
	UnixMilli  int64      `json:"unixMilli"`
	// TookMicros is from the injection of the barrier to the making of the manifest, in
	// microseconds; 0 stands for "not recorded".
	TookMicros int64  `json:"tookMicros,omitempty"`
	Engine     string `json:"engine"`      // version of Isobar that wrote it
	Table      string `json:"tableFormat"` // format of the state files
	KeyGroups  int    `json:"keyGroups"`
	// Graph is a fingerprint of the region's components and edges.
	Graph      string                   `json:"graph"`
	Components map[string]ComponentMeta `json:"components"`
	Tasks      []TaskSnapshot           `json:"tasks"`
}
