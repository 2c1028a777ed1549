package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
)

// unsettled makes a data folder where 2.5 was undone before it was settled.
func unsettled(t *testing.T) (data string) {
	t.Helper()
	data, _ = build(t, "words")
	contains(t, []string{"txn", "rollback", "--store", data, "--to", "1.1", "--yes"}, "Done.", "superseded, unsettled, all input ended")
	return data
}

func TestRollbackForwardIsRefusedForTheSakeOfTransactions(t *testing.T) {
	data := unsettled(t)
	before := headIn(t, data)
	forward := []string{"txn", "rollback", "--store", data, "--to", "2.5", "--yes"}
	fails(t, exitFailed, forward, "checkpoint 2.5", `transactions of "sink"`, "go back to a checkpoint before it", "--drop-unpublished")
	if h := headIn(t, data); h.Generation != before.Generation || h.Editor != before.Editor {
		t.Fatalf("the head was changed to %+v", h)
	}
	contains(t, append(forward, "--drop-unpublished"), "Done.", "current, unsettled, all input ended")
	if r := headIn(t, data).Regions["count"]; r.Current().String() != "2.5" || !r.LeavesBehind(*r.Current()) {
		t.Errorf("the head is %+v", r)
	}
	contains(t, []string{"checkpoint", "show", data}, "Checkpoint 2.5 of topology words (current, unsettled, all input ended)")
	var lines []listed
	if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "list", data, "--json"})), &lines); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if want := l.Checkpoint != "1.2"; l.Unsettled != want { // 1.2 was never undone
			t.Errorf("%s is unsettled: %t", l.Checkpoint, l.Unsettled)
		}
	}
}

// With --address the run is told what is accepted.
func TestRollbackOfARunTellsWhatIsAccepted(t *testing.T) {
	data := unsettled(t)
	h := headIn(t, data)
	var asked []string
	run := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		_ = json.NewEncoder(w).Encode(h)
	}))
	defer run.Close()
	forward := []string{"txn", "rollback", "--store", data, "--to", "2.5", "--yes", "--address", strings.TrimPrefix(run.URL, "http://")}
	fails(t, exitFailed, forward, "--drop-unpublished")
	contains(t, append(forward, "--drop-unpublished"), "Done.")
	if want := []string{"/operate/rollback?drop-unpublished=true&to=2.5"}; !slices.Equal(asked, want) {
		t.Errorf("asked was %q, want %q", asked, want)
	}
}

// A copy of it leaves the same behind.
func TestCopyOfWhatIsUnsettledIsUnsettled(t *testing.T) {
	data, _, first, second := counted(t)
	if r := headIn(t, data).Regions["count"]; r.Settled != second.Batch {
		t.Errorf("after an orderly end the head is %+v", r)
	}
	store, err := filestore.Open(filepath.Join(data, "checkpoints", "words"))
	if err != nil {
		t.Fatal(err)
	}
	undo := func(h *checkpoint.Head) ([]checkpoint.Ref, error) {
		r := h.Regions["count"]
		r.Settled = 0
		h.Regions["count"] = r
		return checkpoint.RollbackEdit(first.Generation, first.Batch, false)(h)
	}
	if _, _, _, err := checkpoint.EditHead(t.Context(), store, "operator", undo); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{first.String(): false, second.String(): true} {
		to := filepath.Join(t.TempDir(), "copy")
		contains(t, []string{"checkpoint", "copy", data, to, "--checkpoint", name}, "Copied checkpoint "+name)
		if r := headIn(t, to).Regions["count"]; r.LeavesBehind(*r.Current()) != want {
			t.Errorf("the head of the copy of %s is %+v", name, r)
		}
	}
}
