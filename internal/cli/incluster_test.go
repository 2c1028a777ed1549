package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine/cluster"
)

// testMaster plays the topology master of words, whose checkpoints are in a folder.
type testMaster struct {
	c      *testCluster
	store  *filestore.Store
	takes  time.Duration // to take a savepoint
	asked  []cluster.Rollback
	silent bool // about the head, once it has gone back
}

func (m *testMaster) answer(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var call cluster.Call
	if err := json.Unmarshal(body, &call); err != nil {
		return nil, err
	}
	edit := func(e checkpoint.Edit) error {
		_, _, _, err := checkpoint.EditHead(ctx, m.store, operator(), e)
		return err
	}
	switch call.Verb {
	case cluster.VerbHead:
		if m.silent && len(m.asked) > 0 {
			return nil, errors.New("the topology master has gone")
		}
		data, _, err := m.store.ReadHead(ctx)
		if err != nil {
			return nil, err
		}
		h, err := checkpoint.DecodeHead("head", data)
		if err != nil {
			return nil, err
		}
		return json.Marshal(h)
	case cluster.VerbRollback:
		var r cluster.Rollback
		if err := json.Unmarshal(call.Body, &r); err != nil {
			return nil, err
		}
		g, n, err := checkpoint.ParseRef(r.To)
		if err != nil {
			return nil, err
		}
		m.asked = append(m.asked, r)
		return nil, edit(checkpoint.RollbackEdit(g, n, r.DropUnpublished))
	case cluster.VerbSavepoint:
		var s cluster.Savepoint
		if err := json.Unmarshal(call.Body, &s); err != nil {
			return nil, err
		}
		m.c.sleep(m.takes)
		if err := edit(checkpoint.PinEdit(2, 5, s.Name)); err != nil {
			return nil, fmt.Errorf("take savepoint %q: %w", s.Name, err)
		}
		return json.Marshal(cluster.SavepointTaken{Checkpoints: []checkpoint.Ref{{Generation: 2, Batch: 5}}})
	}
	return nil, fmt.Errorf("no %s here", call.Verb)
}

// withMaster runs a test with a topology words in a cluster, whose checkpoints are those of
// build. Its configuration says that they are in a folder that seen makes of theirs.
func withMaster(t *testing.T, seen func(data string) string, test func(c *testCluster, m *testMaster, data string)) {
	data, store := build(t, "words")
	folder := &url.URL{Scheme: "file", Path: filepath.ToSlash(seen(data))}
	withCluster(t, func(c *testCluster) {
		m := &testMaster{c: c, store: store}
		a := c.submit("words", "checkpoint.store="+folder.String())
		stop, err := c.machine.Serve(cluster.MasterService(a.ID), m.answer)
		c.must(err)
		defer stop()
		test(c, m, data)
	})
}

func checkpointsIn(data string) string { return filepath.Join(data, "checkpoints") }

func TestSavepointInACluster(t *testing.T) {
	withMaster(t, checkpointsIn, func(c *testCluster, m *testMaster, data string) {
		m.takes = 90 * time.Second // longer than a nimbus is waited for
		c.prints("2.5\n", "savepoint", "words", "--name", "before-update")
		pinned := func(p checkpoint.Pin) bool { return p.Name == "before-update" && p.Ref.String() == "2.5" }
		if h := headIn(t, data); !slices.ContainsFunc(h.Pins, pinned) {
			t.Errorf("the head has the pins %+v", h.Pins)
		}
		if code, _, errOut := c.call("checkpoint", "pin", data, "1.2", "--name", "taken"); code != exitOK {
			t.Fatal(errOut)
		}
		c.fails(exitFailed, "savepoint words --name taken", `take savepoint "taken": `)
		var refs []taken
		if c.json(&refs, "savepoint", "words"); len(refs) != 1 || refs[0].Generation != 2 || refs[0].Batch != 5 {
			t.Errorf("JSON holds %+v", refs)
		}
		known := checkpoint.Ref{Generation: 2, Batch: 5, Manifest: "m", Size: 7, UnixMilli: 9}
		for want, ref := range map[string]checkpoint.Ref{
			`[{"generation":2,"batch":5,"name":"x"}]`:                                                  {Generation: 2, Batch: 5},
			`[{"generation":2,"batch":5,"name":"x","manifest":"m","size":7,"crc32c":0,"unixMilli":9}]`: known,
		} {
			if got, err := json.Marshal(takenOf([]checkpoint.Ref{ref}, "x")); err != nil || string(got) != want {
				t.Errorf("JSON is %s, %v, want %s", got, err, want)
			}
		}
		c.fails(exitUsage, "savepoint", "name a topology in a cluster, or the --address")
		c.fails(exitUsage, "savepoint words --address 127.0.0.1:1", "name a topology in a cluster, or the --address")
		c.fails(exitFailed, "savepoint other", `topology "other" is not there`)
	})
}

const rollbackShown = `Region count of topology words goes back from 2.5 to 1.1, taken 2023-11-14 22:13:20 UTC.
Undone are:
    checkpoint 2.5, taken 2023-11-14 22:13:20 UTC
`

func TestRollbackInACluster(t *testing.T) {
	withMaster(t, checkpointsIn, func(c *testCluster, m *testMaster, data string) {
		code, out, errOut := c.call("txn", "rollback", "words", "--to", "1.1", "--yes")
		if code != exitOK || !strings.HasPrefix(out, rollbackShown) || errOut != "" {
			t.Fatalf("exit code %d, %s\n%s", code, errOut, out)
		}
		for _, want := range []string{"Published, or about to be, and not undone by this:\n    transaction 2.5 of sink/0: 10 bytes: prepared-9", "Done.\n\nTopology words, generation 3, run run-1\n", "superseded, unsettled, all input ended\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("it prints\n%s\nwithout %q", out, want)
			}
		}
		if h := headIn(t, data); h.Regions["count"].Current().String() != "1.1" || len(m.asked) != 1 || m.asked[0] != (cluster.Rollback{Topology: "words", To: "1.1"}) {
			t.Errorf("asked for %+v, the head is %+v", m.asked, h)
		}
		c.fails(exitFailed, "txn rollback words --to 1.1 --yes", "is at 1.1 already")
		c.fails(exitFailed, "txn rollback words --to 2.5 --yes", `transactions of "sink"`, "--drop-unpublished")
		if len(m.asked) != 1 {
			t.Errorf("asked for %+v", m.asked)
		}
		var u undone
		if c.json(&u, "txn", "rollback", "words", "--to", "2.5", "--yes", "--drop-unpublished"); !u.Done || u.Generation != 4 || u.To != "2.5" || u.Unseen != "" || !m.asked[1].DropUnpublished {
			t.Errorf("JSON holds %+v, asked for %+v", u, m.asked)
		}
	})
}

// Without the store it is shown what the head tells, and what is not known.
func TestRollbackInAClusterWithoutTheStore(t *testing.T) {
	for name, x := range map[string]struct {
		seen func(data string) string
		want string
	}{
		"no folder":       {func(data string) string { return filepath.Join(data, "none") }, "none cannot be read from here: look for checkpoints:"},
		"another folder":  {func(data string) string { return data }, ", as it is seen from here, has no checkpoints of topology words"},
		"another machine": {otherRun, ", as it is seen from here, holds another run of topology words"},
	} {
		t.Run(name, func(t *testing.T) {
			withMaster(t, x.seen, func(c *testCluster, m *testMaster, data string) {
				code, out, errOut := c.call("txn", "rollback", "words", "--to", "1.1", "--yes")
				shown := rollbackShown + "Not shown are positions that go back, and transactions, which stay published:\n    "
				flat := strings.Join(strings.Fields(out), " ")
				if code != exitOK || errOut != "" || !strings.HasPrefix(out, shown) || !strings.Contains(flat, x.want) || !strings.HasSuffix(out, "Done. The head is of generation 3 now.\n") {
					t.Errorf("exit code %d, %s\n%s", code, errOut, out)
				}
				if h := headIn(t, data); h.Regions["count"].Current().String() != "1.1" {
					t.Errorf("the head is %+v", h)
				}
				// What is refused for the sake of transactions, the topology master refuses.
				var u undone
				if c.json(&u, "txn", "rollback", "words", "--to", "2.5", "--yes", "--drop-unpublished"); !u.Done || !slices.Equal(u.Unreadable, []string{"1.1"}) || u.Unseen == "" || !m.asked[1].DropUnpublished {
					t.Errorf("JSON holds %+v, asked for %+v", u, m.asked)
				}
			})
		})
	}
}

// otherRun makes a folder with checkpoints of another run of the topology.
func otherRun(data string) string {
	dir := filepath.Join(data, "other")
	s, err := filestore.Open(filepath.Join(dir, "words"))
	if err != nil {
		panic(err)
	}
	b, err := checkpoint.EncodeHead(&checkpoint.Head{Topology: "words", RunID: "run-2", Generation: 1, Writer: "w", Regions: map[string]checkpoint.RegionHead{}})
	if err == nil {
		_, err = s.SwapHead(context.Background(), "", b)
	}
	if err != nil {
		panic(err)
	}
	return dir
}

func TestRollbackInAClusterRefusesWhatIsWrong(t *testing.T) {
	withMaster(t, checkpointsIn, func(c *testCluster, m *testMaster, data string) {
		c.fails(exitUsage, "txn rollback words", "--to is needed, and the NAME of a topology in a cluster or --store")
		c.fails(exitUsage, "txn rollback --to 1.1", "--to is needed, and the NAME")
		c.fails(exitUsage, "txn rollback words --to 1.1 --address 127.0.0.1:1", "--to is needed, and the NAME")
		c.fails(exitUsage, "txn rollback words --to 1.1 --store "+data+" --nats nats://x:1 --yes", "--store and --nats")
		c.fails(exitUsage, "txn rollback words --to 1.1 --json", "--json needs --yes")
		c.fails(exitFailed, "txn rollback other --to 1.1 --yes", `topology "other" is not there`)
		c.fails(exitFailed, "txn rollback words --to 9.9 --yes", `topology "words" has no checkpoint "9.9", there are 1.1, 1.2, 2.5`)
		c.fails(exitFailed, "txn rollback words --to 1.1 --yes -c checkpoint.stor=x", "did you mean checkpoint.store?")
		if code, out, errOut := c.call("txn", "rollback", "words", "--to", "1.1"); code != exitUsage || !strings.HasPrefix(out, rollbackShown) || !strings.Contains(errOut, "say --yes") {
			t.Errorf("without --yes: exit code %d, %q\n%s", code, errOut, out)
		}
		if len(m.asked) > 0 {
			t.Errorf("asked for %+v", m.asked)
		}
		m.silent = true
		if code, _, errOut := c.call("txn", "rollback", "words", "--to", "1.1", "--yes"); code != exitFailed || !strings.Contains(errOut, "topology words has gone back to 1.1, but how its head is now cannot be told: ") {
			t.Errorf("exit code %d, %q", code, errOut)
		}
	})
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		c.fails(exitFailed, "txn rollback words --to 1.1 --yes", "asking the topology master of words: ", "'isobar txn rollback --store' goes back while nothing runs")
	})
}
