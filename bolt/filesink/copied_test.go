package filesink

import (
	"strings"
	"testing"

	"github.com/isobar-io/isobar/txn"
)

func TestCopiedPartGoesWhenNobodyGoesBackToIt(t *testing.T) {
	dir := t.TempDir()
	o := RollingOptions{RollBatches: 9}
	r := newRoller(t, dir, o, 1)
	r.put(event(0))
	r.endBatch()
	r.put(event(1)) // void
	second := newRoller(t, dir, o, 2, r.handles...)
	if n := len(hiddenFiles(t, dir)); n != 2 {
		t.Fatalf("%d hidden files, want the old one and its copy", n)
	}
	second.put(event(2))
	second.commitBatch()
	if err := second.AckCommit(t.Context(), 2, 1); err != nil {
		t.Fatal(err)
	}
	if n := len(hiddenFiles(t, dir)); n != 2 {
		t.Errorf("%d hidden files while the old one may be gone back to", n)
	}
	third := newRoller(t, dir, o, 3, r.handles...) // goes back to it
	third.put(event(3))
	third.commitBatch()
	if err := third.AckCommit(t.Context(), 2, 2); err != nil {
		t.Fatal(err)
	}
	if err := third.InputEnded(nil); err != nil {
		t.Fatal(err)
	}
	third.endBatch()
	if n := len(hiddenFiles(t, dir)); n != 0 {
		t.Errorf("%d hidden files in the end", n)
	}
	if got := shownLines(t, dir); len(got) != 2 || !strings.HasSuffix(got[0], "\t0\n") || !strings.HasSuffix(got[1], "\t3\n") {
		t.Errorf("lines %q", got)
	}
}

// The open part is copied with each restart; older checkpoints need the originals.
func TestCopiedPartsOutliveRestarts(t *testing.T) {
	dir := t.TempDir()
	o := RollingOptions{RollBatches: 9}
	r := newRoller(t, dir, o, 1)
	newest := func() txn.Handle { return r.handles[len(r.handles)-1] }
	kept := []txn.Handle{}
	for gen := txn.Generation(1); gen < 4; gen++ {
		if gen > 1 {
			r = newRoller(t, dir, o, gen, newest())
		}
		r.put(event(int(gen)))
		r.commitBatch()
		if err := r.AckCommit(t.Context(), r.batch, 1); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, newest())
	}
	if n := len(hiddenFiles(t, dir)); n != 3 {
		t.Errorf("%d hidden files, want one for each checkpoint", n)
	}
	for i := range kept { // gone back to, one after the other
		r = newRoller(t, dir, o, txn.Generation(10+i), kept[len(kept)-1-i])
	}
	r.put(event(4))
	r.commitBatch()
	if err := r.AckCommit(t.Context(), 2, 2); err != nil {
		t.Fatal(err)
	}
	r.finish()
	if got := shownLines(t, dir); !endIn(got, "\t1\n \t4\n") {
		t.Errorf("lines %q", got)
	}
	if n := len(hiddenFiles(t, dir)); n != 0 {
		t.Errorf("%d hidden files in the end", n)
	}
}
