package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
)

// objectsIn returns the names of all objects in a data folder, with their sizes.
func objectsIn(t *testing.T, data string) map[string]int64 {
	t.Helper()
	root := filepath.Join(data, "checkpoints", "words")
	all := map[string]int64{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err == nil && !d.IsDir() && !strings.HasPrefix(rel, "heads") {
			info, err := d.Info()
			if err != nil {
				return err
			}
			all[filepath.ToSlash(rel)] = info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// namedIn returns the names of all objects that kept checkpoints name.
func namedIn(t *testing.T, data string) map[string]bool {
	t.Helper()
	var found []verified
	if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "verify", data, "--all", "--json"})), &found); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, v := range found {
		named[v.Object] = true
	}
	return named
}

func TestPinnedCheckpointsStay(t *testing.T) {
	data, _, first, second := counted(t)
	contains(t, []string{"checkpoint", "pin", data, first.String(), "--name", "before"}, "Nothing is let go of.",
		"Pinned: checkpoint "+first.String()+" of region", `as savepoint "before"`)
	contains(t, []string{"checkpoint", "pin", data, "words", first.String()}, "Pinned")
	contains(t, []string{"checkpoint", "list", data}, `retained, savepoint "before", pinned`)
	fails(t, exitFailed, []string{"checkpoint", "pin", data, second.String(), "--name", "before"}, "that is the name of "+first.String())
	fails(t, exitFailed, []string{"checkpoint", "pin", data, "7.7"}, "keeps no such checkpoint")
	contains(t, []string{"checkpoint", "prune", data, "--keep", "1"}, "Nothing is let go of.")
	contains(t, []string{"checkpoint", "show", data, "words", "before"}, "(pinned, savepoint \"before\"")
	contains(t, []string{"checkpoint", "unpin", data, first.String()}, "Let go of checkpoint "+first.String())
	if h := headIn(t, data); len(h.Pins) > 0 {
		t.Errorf("pins are left: %+v", h.Pins)
	}
	fails(t, exitFailed, []string{"checkpoint", "unpin", data, "--name", "before"}, `savepoint "before"`, "no such pin")
	contains(t, []string{"checkpoint", "pin", data, second.String(), "--name", "x"})
	contains(t, []string{"checkpoint", "unpin", data, "words", "--name", "x", "--json"}, `"dropped": []`, `"pins": []`)
}

func TestPruneDeletesWhatNothingElseNames(t *testing.T) {
	data, o, first, second := counted(t)
	third := counts(t, data, 300, 1, 0, o).Last
	before := objectsIn(t, data)
	out := contains(t, []string{"checkpoint", "prune", data, "--keep", "1", "--dry-run"}, "Would let go of checkpoint "+second.String(), "It would free")
	if after := objectsIn(t, data); len(after) != len(before) || len(headIn(t, data).Kept("count")) < 3 {
		t.Fatalf("a dry run has changed something: %v, was %v", after, before)
	}
	done := contains(t, []string{"checkpoint", "prune", data, "--keep", "1"}, "Let go of checkpoint "+first.String())
	if want := strings.ReplaceAll(strings.ReplaceAll(out, "Would let", "Let"), "It would free", "Freed"); done != want {
		t.Errorf("prune prints\n%s\nthe dry run\n%s", done, want)
	}
	left, named := objectsIn(t, data), namedIn(t, data)
	for name := range left {
		if !named[name] {
			t.Errorf("%s is left and nothing names it", name)
		}
	}
	if len(left) >= len(before) || currentIn(t, data) != *third {
		t.Errorf("%d objects are left of %d", len(left), len(before))
	}
	counts(t, data, 400, 2, 0, o)
	if o.total() != 400 {
		t.Errorf("%d records are published, want 400", o.total())
	}
}

// A prune that was interrupted leaves only what nothing names.
func TestPruneOfWhatIsPartlyDeletedAlready(t *testing.T) {
	data, _, first, _ := counted(t)
	if err := os.Remove(filepath.Join(data, "checkpoints", "words", filepath.FromSlash(first.Manifest))); err != nil {
		t.Fatal(err)
	}
	contains(t, []string{"checkpoint", "prune", data, "--keep", "1"}, "Let go of checkpoint "+first.String())
	contains(t, []string{"checkpoint", "verify", data, "--all"}, "All is right")
}

// Without all that is kept nothing can be known to be free.
func TestPruneDeletesNothingIfWhatIsKeptIsDamaged(t *testing.T) {
	data, _, _, second := counted(t)
	if err := os.Remove(filepath.Join(data, "checkpoints", "words", filepath.FromSlash(second.Manifest))); err != nil {
		t.Fatal(err)
	}
	before := objectsIn(t, data)
	fails(t, exitFailed, []string{"checkpoint", "prune", data, "--keep", "1"}, "nothing can be deleted while", second.Manifest)
	if after := objectsIn(t, data); len(after) != len(before) {
		t.Errorf("%d objects are left of %d", len(after), len(before))
	}
}

func TestRollbackShowsWhatItUndoes(t *testing.T) {
	data, o, first, second := counted(t)
	rollback := []string{"txn", "rollback", "--store", data, "--to", first.String()}
	undoes := []string{"goes back from " + second.String() + " to " + first.String(), "checkpoint " + second.String() + ", taken",
		"position of numbers in 0/1: from", "Published, or about to be", "of sink/0"}
	before := headIn(t, data)
	fails(t, exitUsage, rollback, append(undoes, "nobody can be asked without a terminal")...)
	fails(t, exitUsage, append(rollback, "--json"), "--json needs --yes")
	if h := headIn(t, data); h.Generation != before.Generation {
		t.Fatalf("the head was changed to %+v", h)
	}
	contains(t, append(rollback, "--yes"), append(undoes, "Done.", "superseded")...)
	h := headIn(t, data)
	if currentIn(t, data) != first || h.Generation != before.Generation+1 || h.Writer == before.Writer {
		t.Fatalf("the head is %+v", h)
	}
	contains(t, []string{"state", "get", data, "w03", "--state", "total"}, "w03: 5\n")
	fails(t, exitFailed, append(rollback, "--yes"), "is at "+first.String()+" already")
	// Forth again, by a name.
	contains(t, []string{"checkpoint", "pin", data, second.String(), "--name", "new"})
	contains(t, []string{"txn", "rollback", "words", "--store", data, "--to", "new", "--yes", "--json"}, `"done": true`, `"to": "`+second.String()+`"`)
	counts(t, data, 200, 2, 0, o)
	contains(t, []string{"state", "get", data, "w03", "--state", "total"}, "w03: 10\n")
	contains(t, []string{"checkpoint", "prune", data}, "Let go of checkpoint")
	contains(t, []string{"checkpoint", "verify", data, "--all"}, "All is right")
}

func TestRollbackIsOfWhatWasShown(t *testing.T) {
	data, o, first, second := counted(t)
	var l location
	archives, err := l.openAll(t.Context(), data, "")
	if err != nil {
		t.Fatal(err)
	}
	a := archives[0]
	u, err := a.undone(t.Context(), first.String())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(u.Checkpoints, []string{second.String()}) {
		t.Errorf("undone are %q, must be %s", u.Checkpoints, second)
	}
	counts(t, data, 200, 2, 0, o)
	if _, err := (inStore{a}).rollback(t.Context(), u.to, false, a.head); err == nil || !strings.Contains(err.Error(), "the head has moved to") {
		t.Errorf("what was not shown is undone: %v", err)
	}
	if currentIn(t, data) == first {
		t.Error("the head was changed")
	}
}

// With --address the run goes back by itself.
func TestRollbackOfARunAsksTheRun(t *testing.T) {
	data, _, first, _ := counted(t)
	before := headIn(t, data)
	asked := ""
	run := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		h := before.Clone()
		if _, err := checkpoint.RollbackEdit(first.Generation, first.Batch, false)(h); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(h)
	}))
	defer run.Close()
	address := strings.TrimPrefix(run.URL, "http://")
	contains(t, []string{"txn", "rollback", "--store", data, "--to", first.String(), "--yes", "--address", address}, "Done.", "superseded")
	if h := headIn(t, data); asked != "POST /operate/rollback?to="+first.String() || h.Generation != before.Generation {
		t.Errorf("asked was %q, the head is %+v", asked, h)
	}
}

func TestAskingTakesOnlyYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "yes": true, "\n": false, "n\n": false, "": false, "yesterday\n": false} {
		var out bytes.Buffer
		if err := ask(strings.NewReader(answer), &out, true); (err == nil) != want || out.Len() == 0 {
			t.Errorf("%q: %v", answer, err)
		}
	}
	if err := ask(strings.NewReader("y\n"), new(bytes.Buffer), false); err == nil {
		t.Error("an answer was taken without a terminal")
	}
}

func TestCopyIsARunOfItsOwn(t *testing.T) {
	data, o, first, second := counted(t)
	to := filepath.Join(t.TempDir(), "copy")
	contains(t, []string{"checkpoint", "copy", data, to}, "Copied checkpoint "+second.String()+" of topology words", "0 were there")
	contains(t, []string{"checkpoint", "verify", to, "--all"}, "All is right")
	h := headIn(t, to)
	if h.RunID == headIn(t, data).RunID || len(h.RunID) < 20 || currentIn(t, to) != second || h.Generation <= headIn(t, data).Generation {
		t.Errorf("the head of the copy is %+v", h)
	}
	contains(t, []string{"checkpoint", "copy", data, to}, "0 objects, 0 bytes", "complete before")
	if again := headIn(t, to); again.Writer != h.Writer {
		t.Error("a copy that was complete has another head")
	}
	// The original goes on, and the copy follows.
	counts(t, data, 170, 3, 0, o)
	contains(t, []string{"checkpoint", "copy", data, to}, "were there", "Copied checkpoint "+currentIn(t, data).String())
	contains(t, []string{"checkpoint", "verify", to, "--all"}, "All is right")
	// Not back to an older one, nor over what has run.
	fails(t, exitFailed, []string{"checkpoint", "copy", data, to, "--checkpoint", first.String()}, "is newer than "+first.String(), "--force")
	mine := &outside{published: map[string]int{}}
	counts(t, to, 200, 2, 0, mine)
	if mine.total() != 30 || o.total() != 170 {
		t.Errorf("the copy has published %d records, the original %d", mine.total(), o.total())
	}
	for id := range mine.published {
		if _, ok := o.published[id]; ok {
			t.Errorf("the copy has touched %s", id)
		}
	}
	contains(t, []string{"state", "get", to, "w03", "--state", "total"}, "w03: 10\n")
	ran := headIn(t, to).Generation
	counts(t, data, 180, 3, 0, o)
	fails(t, exitFailed, []string{"checkpoint", "copy", data, to}, "--force")
	contains(t, []string{"checkpoint", "copy", data, to, "words", "--force", "--json"}, `"head": true`)
	if h := headIn(t, to); h.Generation <= ran || currentIn(t, to) != currentIn(t, data) {
		t.Errorf("the head of the copy is %+v", h)
	}
	contains(t, []string{"checkpoint", "verify", to, "--all"}, "All is right")
	counts(t, to, 210, 1, 0, mine)
	contains(t, []string{"state", "get", to, "w03", "--state", "total"}, "w03: 11\n")
}

func TestCopyOfAnEarlierCheckpointGoesOnFromIt(t *testing.T) {
	data, _, first, _ := counted(t)
	to := t.TempDir()
	contains(t, []string{"checkpoint", "copy", data, to, "--checkpoint", first.String()}, "Copied checkpoint "+first.String())
	o := &outside{published: map[string]int{}}
	if res := counts(t, to, 160, 2, 0, o); res.From == nil || *res.From != first || o.total() != 60 {
		t.Errorf("%+v, published are %d", res, o.total())
	}
}

// Also of the checkpoints of one generation a copy does not go back.
func TestCopyIsNotReplacedByAnOlderBatch(t *testing.T) {
	data, to := t.TempDir(), t.TempDir()
	values, err := config.Of(map[string]any{"transaction.schedule.batch.delay.ms": 10})
	if err != nil {
		t.Fatal(err)
	}
	counts(t, data, 200, 1, 1000, &outside{published: map[string]int{}}, engine.WithConfig(values))
	kept := headIn(t, data).Kept("count")
	if len(kept) < 2 || kept[0].Generation != kept[1].Generation {
		t.Fatalf("kept are %v", kept)
	}
	contains(t, []string{"checkpoint", "copy", data, to, "--checkpoint", kept[1].String()})
	fails(t, exitFailed, []string{"checkpoint", "copy", data, to, "--checkpoint", kept[0].String()}, "is newer than "+kept[0].String())
	contains(t, []string{"checkpoint", "copy", data, to})
}

// A run may let go of checkpoints while somebody looks at them.
func TestWhatIsLetGoOfMeanwhileIsNotDamaged(t *testing.T) {
	data, o, first, second := counted(t)
	third := counts(t, data, 170, 2, 0, o).Last
	var l location
	archives, err := l.openAll(t.Context(), data, "words")
	if err != nil {
		t.Fatal(err)
	}
	a := archives[0]
	contains(t, []string{"checkpoint", "prune", data, "--keep", "1"}, "Let go of checkpoint "+first.String())
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	if lines, err := a.list(cmd); err != nil || len(lines) == 0 || lines[len(lines)-1].Checkpoint != third.String() || slices.ContainsFunc(lines, func(l listed) bool { return l.Checkpoint == first.String() }) {
		t.Errorf("list: %v, %+v", err, lines)
	}
	if err := a.verify(cmd, a.entries(), false); err != nil || !strings.Contains(out.String(), "Let go while it was verified: "+first.String()) {
		t.Errorf("verify: %v\n%s", err, out.String())
	}
	if _, err := a.garbage(t.Context(), []checkpoint.Ref{second}, a.head); err != nil {
		t.Errorf("garbage: %v", err)
	}
	if gone := names(a.gone(t.Context())); !strings.HasPrefix(gone, first.String()) || strings.Contains(gone, third.String()) {
		t.Errorf("gone are %s", gone)
	}
}

func TestCopyRefusesDamageAndOtherPlaces(t *testing.T) {
	data, _, _, second := counted(t)
	other := t.TempDir()
	counts(t, other, 10, 1, 0, &outside{published: map[string]int{}})
	before := headIn(t, other)
	fails(t, exitFailed, []string{"checkpoint", "copy", data, other}, "of another run", "--force")
	if h := headIn(t, other); h.Writer != before.Writer {
		t.Error("the head was replaced")
	}
	stray := t.TempDir()
	if err := os.MkdirAll(filepath.Join(stray, "checkpoints", "words", "data", "x"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stray, "checkpoints", "words", "data", "x", "y"), []byte("z"), 0o666); err != nil {
		t.Fatal(err)
	}
	fails(t, exitFailed, []string{"checkpoint", "copy", data, stray}, "no head that says")
	// What is damaged is not copied, and no head is written.
	names := namedIn(t, data)
	delete(names, second.Manifest)
	for name := range names {
		if strings.HasPrefix(name, "data/") && strings.Contains(name, "/count-") {
			path := filepath.Join(data, "checkpoints", "words", filepath.FromSlash(name))
			b, err := os.ReadFile(path)
			if err == nil {
				b[len(b)/3] ^= 1
				err = errors.Join(os.Remove(path), os.WriteFile(path, b, 0o666))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	to := filepath.Join(t.TempDir(), "new")
	fails(t, exitFailed, []string{"checkpoint", "copy", data, to}, "damaged")
	if _, err := filestore.HeadFile(filepath.Join(to, "checkpoints", "words")); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("there is a head: %v", err)
	}
}

// A copy that died on the way goes on where it was.
func TestCopyGoesOnWhereItWasInterrupted(t *testing.T) {
	data, _, _, _ := counted(t)
	whole, to := t.TempDir(), t.TempDir()
	contains(t, []string{"checkpoint", "copy", data, whole})
	names := objectsIn(t, whole)
	for i, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range names {
			if !yield(name) {
				return
			}
		}
	}) {
		if i%2 == 0 {
			continue
		}
		b, err := os.ReadFile(filepath.Join(whole, "checkpoints", "words", filepath.FromSlash(name)))
		path := filepath.Join(to, "checkpoints", "words", filepath.FromSlash(name))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, b, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, []string{"checkpoint", "copy", data, to}, "were there")
	contains(t, []string{"checkpoint", "verify", to}, "All is right")
	if got := objectsIn(t, to); len(got) != len(names) {
		t.Errorf("%d objects are copied, want %d", len(got), len(names))
	}
}
