package process

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
)

// What was deactivated stays so when its topology master is replaced while the coordination
// store is away. Of another epoch nothing is known.
func TestDeactivatedStaysSoWithoutTheCoordinationStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := func(epoch uint64) *leader {
		c := Config{
			Process: cluster.Process{ID: "words-1-1", Epoch: epoch, Dir: dir},
			Logger:  slog.New(slog.DiscardHandler), Levels: NewLevels(slog.LevelInfo),
		}
		return &leader{Config: c, control: engine.NewControl(), changed: make(chan struct{}, 1), noted: notedOf(c)}
	}
	told := func(m *leader, active bool) {
		text, err := json.Marshal(cluster.Intent{Epoch: m.Epoch, Active: active})
		if err != nil {
			t.Fatal(err)
		}
		m.told(cluster.Entry{Key: cluster.KeyIntent, Value: text}, func() {})
	}
	assumed := func(epoch uint64) bool {
		m := begun(epoch)
		m.activateUnknown()
		return m.status.active.Load()
	}
	if !assumed(1) {
		t.Error("of which nothing is known, it is not active")
	}
	told(begun(1), true)
	told(begun(1), false)
	if assumed(1) {
		t.Error("it is active again")
	}
	if !assumed(2) {
		t.Error("the next epoch goes by what an older one was told")
	}
	m := begun(1)
	m.Dir = "" // it cannot note anything
	told(m, true)
	if m.activateUnknown(); !m.status.active.Load() {
		t.Error("what is assumed counts more than what was told")
	}
}
