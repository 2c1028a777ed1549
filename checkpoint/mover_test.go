package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// The transcript of a Mover: each line is an event.
func TestMoverTranscript(t *testing.T) {
	var m *Mover
	datadriven.RunTest(t, "testdata/mover.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "new":
			c := MoverConfig{Topology: "t", RunID: "run", Writer: "w", Retained: 2}
			if d.HasArg("head") {
				c.Version = "v9"
				c.Head = &Head{Topology: "t", RunID: "old", Generation: 6, Writer: "x-1", Regions: map[string]RegionHead{
					"a": {Generation: 5, Retained: []Ref{testRef(4, 3), testRef(5, 4), testRef(5, 5)}},
					"b": {Generation: 6},
				}}
			}
			if d.HasArg("pin") {
				c.Head.Pins = []Pin{{Ref: testRef(5, 4), Region: "a"}}
			}
			m = NewMover(c)
			return ""
		case "step":
			return transcript(t, d, false, func(_ time.Duration, l *line) (out []string) {
				if stored, swapped = m.head, nil; m.swap != nil {
					swapped = m.swap.head
				}
				for _, a := range m.Step(moverEvent(l)) {
					out = append(out, formatMover(a))
				}
				return out
			})
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

func testRef(g Generation, n BatchID) Ref {
	return Ref{Generation: g, Batch: n, Manifest: ManifestName(g, n, "r", "u")}
}

// stored is the head that the Mover of a transcript knows to be in the store, swapped
// the one that it wants there.
var stored, swapped *Head

func moverEvent(l *line) MoverEvent {
	err := errors.New("store is away")
	switch l.verb {
	case "raise":
		ev := RaiseRequested{Region: l.args["region"], Generation: Generation(l.num("was")), Settled: BatchID(l.num("settled"))}
		switch {
		case l.args["to"] == "beginning":
			ev.To = &Target{}
		case l.has("to"):
			ev.To = &Target{l.ref("to"), l.has("drop")}
		}
		return ev
	case "settle":
		return SettleRequested{l.args["region"], Generation(l.num("gen")), BatchID(l.num("settled"))}
	case "pin":
		ref := l.ref("ref")
		return EditRequested{1, PinEdit(ref.Generation, ref.Batch, l.args["name"])}
	case "unpin":
		return EditRequested{2, UnpinEdit(0, 0, l.args["name"])}
	case "prune":
		return EditRequested{3, PruneEdit(int(l.num("keep")))}
	case "advance":
		return AdvanceRequested{l.args["region"], Generation(l.num("gen")), *l.ref("ref"), BatchID(l.num("settled"))}
	case "swapped":
		return SwapSucceeded{Version(l.args["version"])}
	case "refused":
		return SwapRefused{}
	case "unknown":
		return SwapUnknown{err}
	case "reread":
		ev := HeadReread{Version: Version(l.args["version"])}
		if l.has("edited") { // the last head that was stored, with a pin that an operator has set
			ev.Head = stored.Clone()
			ev.Head.Editor = "operator"
			ev.Head.Pins = append(ev.Head.Pins, Pin{*ev.Head.Regions["a"].Current(), "a", "mine"})
		}
		if l.has("other") { // what another writer has made of it
			ev.Head = stored.Clone()
			ev.Head.Writer, ev.Head.Generation = "y-8", ev.Head.Generation+1
		}
		if l.has("writer") {
			ev.Head = &Head{Topology: "t", Writer: l.args["writer"]}
			if swapped != nil && swapped.Writer == ev.Head.Writer {
				ev.Head = swapped
			}
		}
		return ev
	case "reread-failed":
		return RereadFailed{err}
	}
	l.d.Fatalf(l.t, "unknown event %q", l.verb)
	return nil
}

func formatMover(a MoverAction) string {
	switch a := a.(type) {
	case Swap:
		return fmt.Sprintf("Swap old=%q %s", a.Old, formatHead(a.Head))
	case Reread:
		return "Reread"
	case Raised:
		text := fmt.Sprintf("Raised region=%s gen=%d from=%s oldest=%d", a.Region, a.Generation, refName(a.From), a.Oldest)
		if a.Err != nil {
			text += ": " + a.Err.Error()
		}
		return text
	case Edited:
		return fmt.Sprintf("Edited id=%d dropped=%v err=%v", a.ID, a.Dropped, a.Err)
	case Advanced:
		return fmt.Sprintf("Advanced region=%s gen=%d batch=%d oldest=%d dropped=%v", a.Region, a.Generation, a.Batch, a.Oldest, a.Dropped)
	case SwapFailed:
		return fmt.Sprintf("SwapFailed region=%s gen=%d: %v", a.Region, a.Generation, a.Err)
	case Lost:
		return fmt.Sprintf("Lost: %v", a.Err)
	}
	return fmt.Sprintf("unknown action %T", a)
}

func formatHead(h *Head) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "writer=%s run=%s gen=%d", h.Writer, h.RunID, h.Generation)
	for _, name := range slices.Sorted(maps.Keys(h.Regions)) {
		r := h.Regions[name]
		fmt.Fprintf(&sb, " %s:%d%v", name, r.Generation, r.Retained)
		if len(r.Superseded) > 0 {
			fmt.Fprintf(&sb, "superseded=%v", r.Superseded)
		}
		if r.Settled > 0 {
			fmt.Fprintf(&sb, "settled=%d", r.Settled)
		}
		for _, manifest := range r.Unsettled {
			what := manifest
			for _, ref := range h.Kept(name) {
				if ref.Manifest == manifest {
					what = ref.String()
				}
			}
			fmt.Fprintf(&sb, "unsettled=%s", what)
		}
	}
	for _, p := range h.Pins {
		fmt.Fprintf(&sb, " pin=%s/%s/%s", p.Region, p, p.Name)
	}
	return sb.String()
}

// headStore is a head that can be swapped.
type headStore struct {
	head    *Head
	version int
}

func (s *headStore) at() Version {
	if s.head == nil {
		return ""
	}
	return Version(fmt.Sprint(s.version))
}

func (s *headStore) swap(sw Swap) bool {
	if sw.Old != s.at() {
		return false
	}
	s.head = sw.Head
	s.version++
	return true
}

// Whatever the store answers, the head of a lone writer goes only forward: every
// request is answered once, in order, with what the head really says; batches and
// generations never go back; and no bytes are ever written twice for different heads.
func TestMoverKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &moverWorld{t: t, written: map[string]string{}, regions: map[string]*moverRegion{}}
		for _, name := range []string{"a", "b", "c"} {
			w.regions[name] = &moverRegion{}
		}
		w.m = NewMover(MoverConfig{Topology: "t", Writer: "w", Retained: 2})
		for range 100 {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				w.request()
			default:
				w.answer(true)
			}
		}
		for w.todo != nil {
			w.answer(false)
		}
		for name, r := range w.regions {
			if r.raising > 0 {
				t.Fatalf("region %s was never raised", name)
			}
			if want := r.committed; w.store.head != nil && want > 0 && w.store.head.Regions[name].Current().Batch != want {
				t.Fatalf("region %s was told of %d, the head says %v", name, want, w.store.head.Regions[name])
			}
		}
	})
}

type moverRegion struct {
	generation Generation
	committed  BatchID
	asked      BatchID
	raising    int
}

type moverWorld struct {
	t       *rapid.T
	m       *Mover
	store   headStore
	todo    MoverAction // Swap or Reread
	late    []Swap      // carried out some time after they seemed to have failed
	written map[string]string
	regions map[string]*moverRegion
}

// request asks for something as a Coordinator would, or an old one.
func (w *moverWorld) request() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "region")
	r := w.regions[name]
	if r.raising == 0 && (r.generation == 0 || rapid.IntRange(0, 3).Draw(w.t, "raise") == 2) {
		r.raising++
		w.step(RaiseRequested{Region: name})
		return
	}
	g := r.generation
	if rapid.IntRange(0, 5).Draw(w.t, "stale") == 3 {
		g--
	}
	if g == r.generation && r.raising == 0 {
		r.asked = max(r.asked, r.committed) + 1
	}
	w.step(AdvanceRequested{Region: name, Generation: g, Ref: testRef(g, r.asked)})
}

func (w *moverWorld) step(ev MoverEvent) {
	for _, a := range w.m.Step(ev) {
		w.check(a)
	}
}

func (w *moverWorld) check(a MoverAction) {
	switch a := a.(type) {
	case Swap:
		data, err := json.Marshal(a.Head)
		if err != nil {
			w.t.Fatal(err)
		}
		if before, ok := w.written[a.Head.Writer]; w.todo != nil || ok && before != string(data) {
			w.t.Fatalf("swap of %s after %s, with %#v under way", data, before, w.todo)
		}
		w.written[a.Head.Writer] = string(data)
		w.todo = a
	case Reread:
		if w.todo != nil {
			w.t.Fatalf("reread with %#v under way", w.todo)
		}
		w.todo = a
	case Raised:
		r, truth := w.regions[a.Region], w.store.head.Regions[a.Region]
		if a.Generation <= r.generation || r.raising != 1 || a.Generation != truth.Generation {
			w.t.Fatalf("%+v for %+v, the head says %+v", a, r, truth)
		}
		if c := truth.Current(); (c == nil) != (a.From == nil) || c != nil && (*a.From != *c || c.Batch != r.committed) {
			w.t.Fatalf("%+v, the head says %+v, told was %d", a, truth, r.committed)
		}
		r.generation, r.raising, r.asked = a.Generation, 0, 0
	case Advanced:
		r, truth := w.regions[a.Region], w.store.head.Regions[a.Region]
		if a.Generation != r.generation || a.Batch <= r.committed || truth.Current().Batch < a.Batch {
			w.t.Fatalf("%+v for %+v, the head says %+v", a, r, truth)
		}
		for _, d := range a.Dropped {
			if slices.Contains(truth.Retained, d) {
				w.t.Fatalf("%+v drops what the head retains: %+v", a, truth)
			}
		}
		r.committed = a.Batch
	case SwapFailed, Edited:
	case Lost:
		w.t.Fatalf("lost without another writer: %v", a.Err)
	}
}

// answer carries out what is to be done, well or badly.
func (w *moverWorld) answer(badly bool) {
	todo, fate := w.todo, 0
	if badly {
		fate = rapid.IntRange(0, 5).Draw(w.t, "fate")
		if len(w.late) > 0 && rapid.Bool().Draw(w.t, "late") {
			w.store.swap(w.late[0])
			w.late = w.late[1:]
		}
	}
	w.todo = nil
	switch todo := todo.(type) {
	case Swap:
		switch fate {
		case 1: // carried out, but the reply is lost
			w.store.swap(todo)
			w.step(SwapUnknown{errors.New("reply lost")})
		case 2: // the request is lost
			w.step(SwapUnknown{errors.New("request lost")})
		case 3: // the request is late
			w.late = append(w.late, todo)
			w.step(SwapUnknown{errors.New("no answer")})
		default:
			if w.store.swap(todo) {
				w.step(SwapSucceeded{w.store.at()})
			} else {
				w.step(SwapRefused{})
			}
		}
	case Reread:
		if fate == 1 {
			w.step(RereadFailed{errors.New("away")})
		} else {
			w.step(HeadReread{w.store.head, w.store.at()})
		}
	}
}
