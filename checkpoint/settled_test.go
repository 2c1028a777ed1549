package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/txn"
)

// A head that was written before this was recorded tells nothing of what is settled.
func TestOlderHeadsSettleNothing(t *testing.T) {
	h := exampleHead()
	data, err := EncodeHead(h)
	if err != nil {
		t.Fatal(err)
	}
	_, doc, _ := strings.Cut(string(data[:len(data)-trailerLen]), "\n")
	for text, want := range map[string]struct {
		settled   BatchID
		unsettled []string
	}{
		"isobar head 2\n" + doc: {0, []string{"manifest/2.17-d", "manifest/1.4-c"}},
		"isobar head 3\n" + doc: {15, []string{"manifest/2.17-d"}},
	} {
		back, err := DecodeHead("head", sealed(text))
		if err != nil {
			t.Fatal(err)
		}
		if r := back.Regions["lines"]; r.Settled != want.settled || !slices.Equal(r.Unsettled, want.unsettled) {
			t.Errorf("%.13s: settled up to %d, unsettled %q", text, r.Settled, r.Unsettled)
		}
	}
}

func TestForwardIsRefusedForTheSakeOfTransactions(t *testing.T) {
	h := exampleHead()
	ref := h.Regions["lines"].Superseded[0]
	m := &Manifest{Tasks: []TaskSnapshot{
		{Component: "lines", Handles: []txn.Handle{{Batch: 17}}},
		{Component: "sink", Handles: []txn.Handle{{Batch: 17, Data: []byte("x")}}},
		{Component: "sink", Index: 1, Handles: []txn.Handle{{Batch: 17, Data: []byte("y")}}},
	}}
	_, err := TargetOf(h, "lines", ref, m, false)
	if err == nil {
		t.Fatal("it is allowed")
	}
	for _, want := range []string{"checkpoint 2.17", `region "lines"`, `transactions of "sink":`, "go back to a checkpoint before it", "--drop-unpublished"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it does not say %q", err, want)
		}
	}
	if to, err := TargetOf(h, "lines", ref, m, true); err != nil || !to.DropUnpublished || *to.Ref != ref {
		t.Errorf("accepted: %+v, %v", to, err)
	}
	if _, err := RollbackEdit(2, 17, false)(h.Clone()); err == nil || !strings.Contains(err.Error(), "was undone before") {
		t.Errorf("the edit itself: %v", err)
	}
	there := h.Clone()
	if _, err := RollbackEdit(2, 17, true)(there); err != nil {
		t.Fatal(err)
	}
	r := there.Regions["lines"]
	if !r.LeavesBehind(ref) || r.Current().Manifest != ref.Manifest {
		t.Errorf("once it is accepted the head is %+v", r)
	}
	if to, err := TargetOf(there, "lines", ref, m, false); err != nil || to.DropUnpublished {
		t.Errorf("what is current was accepted before: %+v, %v", to, err)
	}
	m.Tasks = m.Tasks[:1]
	if to, err := TargetOf(h, "lines", ref, m, false); err != nil || !to.DropUnpublished {
		t.Errorf("without transactions: %+v, %v", to, err)
	}
	if to, err := TargetOf(h, "lines", h.Regions["lines"].Retained[0], m, false); err != nil || to.DropUnpublished {
		t.Errorf("along the line: %+v, %v", to, err)
	}
}

func TestWhatIsKnownOfCheckpointsIsCloned(t *testing.T) {
	h := exampleHead()
	c := h.Clone()
	c.Regions["lines"].Unsettled[0] = "other"
	if r := h.Regions["lines"]; r.Unsettled[0] == "other" {
		t.Error("a clone shares it with the original")
	}
}

// outsideWorld is a target of transactions, one for each checkpoint, beside a Mover. It
// knows what is in it.
type outsideWorld struct {
	t    *rapid.T
	m    *Mover
	keep map[string][]string // by manifest: the transactions that it lists

	prepared, published, lost map[string]bool
	open                      []string // prepared on the current line and not published
	gen                       Generation
	batch, acked              BatchID
	version                   int
}

// step carries out what the Mover says; the store always answers.
func (w *outsideWorld) step(ev MoverEvent) (err error) {
	todo := w.m.Step(ev)
	for len(todo) > 0 {
		a := todo[0]
		todo = todo[1:]
		switch a := a.(type) {
		case Swap:
			data, err := EncodeHead(a.Head)
			if err != nil {
				w.t.Fatal(err)
			}
			if back, err := DecodeHead("head", data); err != nil || len(back.Regions) != len(a.Head.Regions) {
				w.t.Fatal(err)
			}
			w.version++
			todo = append(w.m.Step(SwapSucceeded{Version("v" + string(rune('0'+w.version)))}), todo...)
		case Raised:
			err = a.Err
			w.restored(a)
		case Edited:
			err = a.Err
		default:
		}
	}
	return err
}

// restored is what sinks do when they go on from a checkpoint: discard what it does not
// list, and have what it lists to publish.
func (w *outsideWorld) restored(a Raised) {
	var listed []string
	if a.From != nil && !w.m.Head().Regions["a"].LeavesBehind(*a.From) {
		listed = w.keep[a.From.Manifest]
	}
	for id := range w.prepared {
		if !slices.Contains(listed, id) {
			delete(w.prepared, id)
			w.lost[id] = true
		}
	}
	w.open = nil
	for _, id := range listed {
		if !w.prepared[id] && !w.published[id] {
			w.t.Fatalf("going on from %s, which lists %s: that is lost\n%+v", a.From, id, w.m.Head().Regions["a"])
		}
		if w.prepared[id] {
			w.open = append(w.open, id)
		}
	}
	w.gen, w.batch, w.acked = a.Generation, 0, 0
	if a.From != nil {
		w.batch = a.From.Batch
	}
}

func (w *outsideWorld) commit() {
	w.batch++
	ref := testRef(w.gen, w.batch)
	ref.Size = 1
	id := ref.String()
	w.prepared[id] = true
	w.open = append(w.open, id)
	w.keep[ref.Manifest] = slices.Clone(w.open)
	_ = w.step(AdvanceRequested{Region: "a", Generation: w.gen, Ref: ref, Settled: w.acked})
}

func (w *outsideWorld) publish() {
	for _, id := range w.open {
		delete(w.prepared, id)
		w.published[id] = true
	}
	w.open, w.acked = nil, w.batch
}

// Whatever an operator does, nobody goes on from a checkpoint whose transactions are gone
// without having accepted it; and with a target that is up nothing is ever refused.
func TestWhatIsGoneIsNeverGoneForwardTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &outsideWorld{t: t, keep: map[string][]string{}, prepared: map[string]bool{}, published: map[string]bool{}, lost: map[string]bool{}}
		w.m = NewMover(MoverConfig{Topology: "t", RunID: "r", Writer: "w", Retained: rapid.IntRange(1, 4).Draw(t, "retained")})
		_ = w.step(RaiseRequested{Region: "a"})
		up := rapid.Bool().Draw(t, "always up")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.disturb(up)
		}
	})
}

func (w *outsideWorld) disturb(up bool) {
	t, kept := w.t, w.m.Head().Kept("a")
	to := Target{DropUnpublished: rapid.IntRange(0, 9).Draw(t, "accepted") == 0}
	if len(kept) > 0 {
		to.Ref = &kept[rapid.IntRange(0, len(kept)-1).Draw(t, "which")]
	}
	what := rapid.IntRange(0, 10).Draw(t, "what")
	switch {
	case what < 3:
		w.goBack(to, up)
	case what == 3 && to.Ref != nil:
		_ = w.step(EditRequested{Edit: PinEdit(to.Ref.Generation, to.Ref.Batch, "")})
	case what == 4 && to.Ref != nil:
		_ = w.step(EditRequested{Edit: UnpinEdit(to.Ref.Generation, to.Ref.Batch, "")})
	case what == 5:
		_ = w.step(EditRequested{Edit: PruneEdit(rapid.IntRange(0, 3).Draw(t, "keep"))})
	case what == 6:
		_ = w.step(SettleRequested{Region: "a", Generation: w.gen - 1, Settled: w.batch}) // too late
	case w.gen == 0:
		_ = w.step(RaiseRequested{Region: "a"})
	case what == 7 && !up:
		_ = w.step(RaiseRequested{Region: "a"}) // after a crash
	default:
		w.commit()
	}
	if w.gen > 0 && (up || rapid.IntRange(0, 2).Draw(t, "published") == 0) {
		w.publish()
	}
}

// goBack makes a checkpoint the current one: of a run, at its start, or before it.
func (w *outsideWorld) goBack(to Target, up bool) {
	how := rapid.IntRange(0, 3).Draw(w.t, "how")
	if how == 0 {
		to.Ref = nil
	}
	r := w.m.Head().Regions["a"]
	var err error
	if how == 3 && to.Ref != nil { // by hand, after the end of the run
		_ = w.step(SettleRequested{Region: "a", Generation: w.gen, Settled: w.acked})
		w.gen, w.acked = 0, 0
		err = w.step(EditRequested{Edit: RollbackEdit(to.Ref.Generation, to.Ref.Batch, to.DropUnpublished)})
	} else {
		err = w.step(RaiseRequested{Region: "a", To: &to, Generation: w.gen, Settled: w.acked})
	}
	if err != nil && up {
		w.t.Fatalf("back to %s: %v", to, err)
	}
	after := w.m.Head().Regions["a"]
	if err == nil && to.Ref != nil && !to.DropUnpublished && after.LeavesBehind(*to.Ref) && !holds(r.Retained, *to.Ref) {
		w.t.Fatalf("going on from %s, which lists %q, leaves that behind, and nobody has accepted it", to, w.keep[to.Ref.Manifest])
	}
}
