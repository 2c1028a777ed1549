package nimbus

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// blobMap returns a change of a submission that gives it a topology.blobstore.map.
func blobMap(text string) func(*cluster.Submission) {
	return func(s *cluster.Submission) {
		s.Config = maps.Clone(s.Config)
		s.Config["topology.blobstore.map"] = text
	}
}

// uses checks which blobs the processes of wc are given.
func (w *world) uses(want ...cluster.Blob) {
	w.t.Helper()
	d := w.runs("wc")
	if d.Topology.Error != "" || !reflect.DeepEqual(d.Topology.Version.Blobs, want) || !reflect.DeepEqual(d.Assignment.Version.Blobs, want) {
		w.t.Errorf("blobs %+v, and in the assignment %+v, want %+v; %s", d.Topology.Version.Blobs, d.Assignment.Version.Blobs, want, d.Topology.Error)
	}
}

// What a topology runs with is what its configuration says, whether it is submitted, updated
// or rebalanced.
func TestBlobMapsAreFollowed(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1", `topology.blobstore.map={"all":{}}`)
		w.leads()
		for _, key := range []string{"all", "dict", "model"} {
			w.puts(key)
			w.must(w.call("ann", cluster.VerbBlobCreated, blobOf(key, key, "o::r"), nil))
		}
		w.puts("words")
		w.must(w.call("ann", cluster.VerbBlobCreated, blobOf("hers", "words", "o::---"), nil))
		pass(10 * time.Second)

		s := w.program("wc", "v1")
		blobMap(`{"none":{},"hers":{},"dict":{}}`)(&s)
		var checked cluster.Checked
		w.must(w.call("bob", cluster.VerbCheck, s, &checked))
		if told := strings.Join(checked.Problems, "\n"); len(checked.Problems) != 2 || !strings.Contains(told, `blob "none" does not exist: create it first`) || !strings.Contains(told, `user "bob" may not do this with blob "hers"`) {
			t.Errorf("before the upload: %q", checked.Problems)
		}
		w.refuses("bob", cluster.VerbSubmit, s, checked.Problems...)

		blobMap(`{"model":{"uncompress":true},"dict":{"localname":"dict.txt","workerRestart":true}}`)(&s)
		w.must(w.call("bob", cluster.VerbSubmit, s, nil))
		w.uses(cluster.Blob{Key: "dict", LocalName: "dict.txt", WorkerRestart: true}, cluster.Blob{Key: "model", LocalName: "model", Uncompress: true})

		s.Update = true
		blobMap(`{"hers":{}}`)(&s)
		w.refuses("bob", cluster.VerbSubmit, s, `user "bob" may not do this with blob "hers"`)
		blobMap(`{"dict":{}}`)(&s)
		w.must(w.call("bob", cluster.VerbSubmit, s, nil))
		w.refuses("ann", cluster.VerbBlobDeleted, cluster.BlobChange{Key: "model"}, `blob "model" is used by topology wc`) // it may be taken back
		w.uses(cluster.Blob{Key: "dict", LocalName: "dict"})
		w.until(time.Minute, "model is free", func() bool {
			return w.call("ann", cluster.VerbBlobDeleted, cluster.BlobChange{Key: "model"}, nil) == nil
		})

		again := cluster.Rebalance{Name: "wc", Config: map[string]any{"topology.blobstore.map": `{"hers":{},"model":{}}`}}
		w.refuses("bob", cluster.VerbRebalance, again, "topology wc cannot be rebalanced", `user "bob" may not do this with blob "hers"`, `blob "model" does not exist`)
		w.must(w.call("bob", cluster.VerbRebalance, cluster.Rebalance{Name: "wc", Workers: 3}, nil))
		w.uses(cluster.Blob{Key: "dict", LocalName: "dict"})
		again.Config["topology.blobstore.map"] = `{"all":{"localname":"a"}}`
		w.must(w.call("bob", cluster.VerbRebalance, again, nil))
		w.uses(cluster.Blob{Key: "all", LocalName: "a"})

		blobMap("")(&s)
		w.must(w.call("bob", cluster.VerbSubmit, s, nil))
		w.uses()
		delete(s.Config, "topology.blobstore.map")
		w.must(w.call("bob", cluster.VerbSubmit, s, nil))
		w.uses(cluster.Blob{Key: "all", LocalName: "all"}) // as the cluster says
	})
}
