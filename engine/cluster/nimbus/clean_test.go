package nimbus

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestWhatNobodyNeedsGoes(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		used, unused, asked := w.program("wc", "v1"), w.program("old", "v0"), w.program("next", "v2")
		w.must(w.call("ann", cluster.VerbSubmit, used, nil))
		w.runs("wc")
		store := w.server.Connect("root")
		objects, err := store.Objects(w.ctx, cluster.ObjectsBinaries)
		w.must(err)
		for _, id := range []string{"lost-1-1", "gone-2-2"} {
			b, err := store.Bucket(w.ctx, cluster.TopologyBucket(id), true)
			w.must(err)
			_, err = b.Put(w.ctx, cluster.KeyIntent, []byte("{}"))
			w.must(err)
		}
		// An assignment that no topology has, and that runs.
		text, err := json.Marshal(cluster.Assignment{Topology: "lost", ID: "lost-1-1", Number: 4, Master: "sup-c", Version: cluster.Version{Epoch: 1}})
		w.must(err)
		assignments, err := store.Bucket(w.ctx, cluster.BucketAssignments, false)
		w.must(err)
		_, err = assignments.Create(w.ctx, "lost-1-1", text)
		w.must(err)
		pass(50 * time.Minute)
		w.must(w.call("ann", cluster.VerbCheck, asked, nil)) // it is about to be submitted
		there := func(sha string) bool {
			_, err := objects.Info(w.ctx, sha)
			return err == nil
		}
		if !there(unused.Binary.SHA256) {
			t.Error("a program was deleted before its time")
		}
		pass(11 * time.Minute)
		if !there(used.Binary.SHA256) || there(unused.Binary.SHA256) || !there(asked.Binary.SHA256) {
			t.Errorf("used %v, unused %v, asked for %v", there(used.Binary.SHA256), there(unused.Binary.SHA256), there(asked.Binary.SHA256))
		}
		if _, err := store.Bucket(w.ctx, cluster.TopologyBucket("gone-2-2"), false); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("the bucket of nobody: %v", err)
		}
		pass(2 * time.Hour)
		if _, err := assignments.Get(w.ctx, "lost-1-1"); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("the assignment of nobody: %v", err)
		}
		if d := w.detail("wc"); d.Assignment.Number != 1 {
			t.Errorf("wc was touched: %+v", d.Assignment)
		}
	})
}

// A record that cannot be read, as one of a later version, is left alone, and so is all that
// may belong to it.
func TestDamagedRecordIsLeftAlone(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		first := w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		first.end()
		store := w.server.Connect("root")
		topologies, err := store.Bucket(w.ctx, cluster.BucketTopologies, false)
		w.must(err)
		_, err = topologies.Put(w.ctx, "wc", []byte(`{"name": 7}`))
		w.must(err)
		w.addNimbus("n2")
		w.leads()
		pass(3 * time.Hour)
		w.refuses("ann", cluster.VerbSubmit, w.program("wc", "v1"), `topology wc: the record "wc" cannot be read`)
		w.refuses("ann", cluster.VerbKill, cluster.Kill{Name: "wc"}, `the record "wc" cannot be read`)
		var h cluster.Health
		w.must(w.call("ann", cluster.VerbHealth, nil, &h))
		if len(h.Problems) == 0 {
			t.Error("nobody is told")
		}
		assignments, err := store.Bucket(w.ctx, cluster.BucketAssignments, false)
		w.must(err)
		if _, err := assignments.Get(w.ctx, d.Topology.ID); err != nil {
			t.Errorf("its assignment: %v", err)
		}
		if _, err := store.Bucket(w.ctx, cluster.TopologyBucket(d.Topology.ID), false); err != nil {
			t.Errorf("its bucket: %v", err)
		}
		programs, err := store.Objects(w.ctx, cluster.ObjectsBinaries)
		w.must(err)
		if _, err := programs.Info(w.ctx, d.Topology.Version.Binary.SHA256); err != nil {
			t.Errorf("its program: %v", err)
		}
	})
}

// Case: an old process kept its place because it had been first. The later one is right at
// once, however long the other goes on.
func TestLaterMasterIsHeard(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		store := w.server.Connect("root")
		b, err := store.Bucket(w.ctx, cluster.TopologyBucket(d.Topology.ID), false)
		w.must(err)
		for i := range uint64(20) { // its words come between those of the later one
			text, err := json.Marshal(cluster.RunStatus{Epoch: 1, Incarnation: 1, Beat: i, Phase: cluster.PhaseFailed, Error: "a zombie"})
			w.must(err)
			_, err = b.Put(w.ctx, cluster.KeyStatus, text)
			w.must(err)
			pass(700 * time.Millisecond)
		}
		if now := w.detail("wc"); now.Topology.Status != cluster.Active || now.Run.Error != "" || now.Assignment.Number != 1 {
			t.Errorf("the zombie was heard: %+v", now)
		}
	})
}
