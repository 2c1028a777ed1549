package checkpoint_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
)

// swapping is a store that does something at each swap of the head.
type swapping struct {
	checkpoint.Store
	swaps  int
	before func(swap int)
	after  func(swap int) error
}

func (s *swapping) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	s.swaps++
	if s.before != nil {
		s.before(s.swaps)
	}
	v, err := s.Store.SwapHead(ctx, old, data)
	if s.after != nil && err == nil {
		err = s.after(s.swaps)
	}
	return v, err
}

func editable(t *testing.T) *swapping {
	t.Helper()
	s := &swapping{Store: memstore.New()}
	writeHead(t, s.Store, "", 1)
	return s
}

// writeHead makes the head one with checkpoints 1.1 to 1.n.
func writeHead(t *testing.T, s checkpoint.Store, old checkpoint.Version, n checkpoint.BatchID) {
	t.Helper()
	h := &checkpoint.Head{Topology: "t", RunID: "r", Generation: 1, Writer: checkpoint.ManifestName(1, n, "w", "u")}
	r := checkpoint.RegionHead{Generation: 1}
	for b := checkpoint.BatchID(1); b <= n; b++ {
		r.Retained = append(r.Retained, checkpoint.Ref{Generation: 1, Batch: b, Manifest: checkpoint.ManifestName(1, b, "a", "u"), Size: 1})
	}
	h.Regions = map[string]checkpoint.RegionHead{"a": r}
	data, err := checkpoint.EncodeHead(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.SwapHead(t.Context(), old, data); err != nil {
		t.Fatal(err)
	}
}

func headOf(t *testing.T, s checkpoint.Store) (*checkpoint.Head, checkpoint.Version) {
	t.Helper()
	data, v, err := s.ReadHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		t.Fatal(err)
	}
	return h, v
}

func TestEditIsMadeOnTheHeadThatHasMoved(t *testing.T) {
	s := editable(t)
	s.before = func(swap int) {
		if swap == 1 {
			_, v := headOf(t, s.Store)
			writeHead(t, s.Store, v, 2)
		}
	}
	_, before, after, err := checkpoint.EditHead(t.Context(), s, "n1", checkpoint.PinEdit(1, 1, "mine"))
	if err != nil || len(before.Regions["a"].Retained) != 2 || len(after.Pins) != 1 {
		t.Fatalf("before %+v, after %+v, %v", before, after, err)
	}
	if h, _ := headOf(t, s); len(h.Pins) != 1 || len(h.Regions["a"].Retained) != 2 {
		t.Errorf("the head is %+v", h)
	}
}

// An edit that drops a checkpoint and whose reply is lost says what it has dropped.
func TestEditWithoutAReplyIsMadeOnce(t *testing.T) {
	s := editable(t)
	_, v := headOf(t, s)
	writeHead(t, s.Store, v, 3)
	s.after = func(swap int) error {
		if swap == 1 {
			return errors.New("reply lost")
		}
		return nil
	}
	dropped, _, after, err := checkpoint.EditHead(t.Context(), s, "n1", checkpoint.PruneEdit(1))
	if err != nil || len(dropped) != 2 || after.Regions["a"].Current().Batch != 3 || s.swaps != 1 {
		t.Errorf("dropped %v, after %+v, %v, %d swaps", dropped, after, err, s.swaps)
	}
}

// What is unsettled is forgotten with the checkpoint.
func TestEditForgetsWhatIsNotKept(t *testing.T) {
	s := editable(t)
	_, v := headOf(t, s)
	writeHead(t, s.Store, v, 3)
	for i, edit := range []checkpoint.Edit{checkpoint.RollbackEdit(1, 1, false), checkpoint.PinEdit(1, 3, ""), checkpoint.PruneEdit(0)} {
		if _, _, _, err := checkpoint.EditHead(t.Context(), s, checkpoint.ManifestName(1, checkpoint.BatchID(i), "n", "u"), edit); err != nil {
			t.Fatal(err)
		}
		want := []int{2, 2, 1}[i] // 1.2 and 1.3; then only the pinned 1.3
		if h, _ := headOf(t, s); len(h.Regions["a"].Unsettled) != want {
			t.Errorf("after edit %d unsettled are %q", i, h.Regions["a"].Unsettled)
		}
	}
}

func TestEditOfAStoreThatFailsEnds(t *testing.T) {
	s := editable(t)
	full := errors.New("disk full")
	s.Store = failing{s.Store, full}
	if _, _, _, err := checkpoint.EditHead(t.Context(), s, "n1", checkpoint.PinEdit(1, 1, "")); !errors.Is(err, full) || s.swaps > 20 {
		t.Errorf("%v after %d swaps", err, s.swaps)
	}
}

type failing struct {
	checkpoint.Store
	err error
}

func (f failing) SwapHead(context.Context, checkpoint.Version, []byte) (checkpoint.Version, error) {
	return "", f.err
}

// Case kin to text that its encoding does not keep: two savepoints of different names, both
// not UTF-8, became two of one name in the stored head, which nobody could read any more.
func TestNameOfASavepointThatIsNotTextIsRefused(t *testing.T) {
	s := editable(t)
	for i, name := range []string{"\xe4", "\xf6"} {
		_, _, _, err := checkpoint.EditHead(t.Context(), s, checkpoint.ManifestName(1, checkpoint.BatchID(i+1), "e", "u"), checkpoint.PinEdit(1, 1, name))
		if err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if h, _ := headOf(t, s); len(h.Pins) > 0 { // it can be read
		t.Errorf("pinned are %v", h.Pins)
	}
}
