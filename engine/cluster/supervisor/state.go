package supervisor

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// stateVersion is that of state.json.
const stateVersion = 1

type state struct {
	Version int `json:"version"`
	slots.State
}

func newID() string { return strings.ToLower(rand.Text()) }

func (s *Supervisor) statePath() string { return filepath.Join(s.dir, "state.json") }

// load reads what a former supervisor has kept.
func (s *Supervisor) load() (slots.State, error) {
	text, err := os.ReadFile(s.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return slots.State{}, nil
	}
	var st state
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err == nil && st.Version != stateVersion {
		err = fmt.Errorf("it is of version %d; this program reads version %d", st.Version, stateVersion)
	}
	if err != nil {
		return st.State, fmt.Errorf("read %s: %w: remove it if it cannot be mended; what runs goes on", s.statePath(), err)
	}
	return st.State, nil
}

// save puts on disk what the table knows. Failing to is told, and tried again after the
// next event; until then nothing is started.
func (s *Supervisor) save() {
	changes := s.table.Changes()
	text, err := json.Marshal(state{Version: stateVersion, State: s.table.State()})
	if err == nil {
		err = writeSecret(s.statePath(), string(text)+"\n")
	}
	if err != nil && !s.unsaved {
		s.log.Error("what is known cannot be kept on disk; no process is started before it can", "err", err)
	}
	s.unsaved = err != nil
	if err == nil {
		s.saved = changes
	}
}

// findProcesses finds what has become of the processes that a former supervisor had started.
func (s *Supervisor) findProcesses() slots.Event {
	var ev slots.Recovered
	known := map[int]bool{}
	for _, slot := range s.table.Slots() {
		if slot.PID == 0 {
			continue
		}
		p := s.processOf(slot.Place, slot.Incarnation)
		p.birth = slot.Birth
		if p.adopt(slot.PID) {
			known[slot.PID] = true
			s.processes[slot.Place] = p
			ev.Alive = append(ev.Alive, slots.Alive{Place: slot.Place, Epoch: slot.Epoch, Incarnation: slot.Incarnation, PID: slot.PID, Birth: slot.Birth})
		}
	}
	for pid, path := range startedIn(s.dir) {
		if !known[pid] {
			s.find(&ev, pid, path)
		}
	}
	for _, slot := range s.table.Slots() {
		if s.processes[slot.Place] != nil || slot.Phase == slots.Done || slot.Phase == slots.Waiting {
			continue
		}
		if code, how := notedExit(filesOf(s.folder(slot.Place), slot.Incarnation).exit); code >= 0 {
			ev.Ended = append(ev.Ended, slots.Exited{Place: slot.Place, Incarnation: slot.Incarnation, Code: code, How: how})
		}
	}
	for _, slot := range s.table.Slots() {
		if slot.Phase != slots.Cleaning {
			s.holdAgain(slot)
		}
	}
	return ev
}

func (s *Supervisor) processOf(p slots.Place, incarnation uint64) *process {
	f := filesOf(s.folder(p), incarnation)
	return &process{place: p, incarnation: incarnation, beat: f.beat, exit: f.exit}
}

// find adopts a process that was started, and then not noted. Of two for one place the
// later one is right.
func (s *Supervisor) find(ev *slots.Recovered, pid int, path string) {
	text, err := os.ReadFile(path)
	var spec cluster.Process
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	place, ok := placeOf(spec)
	p := s.processOf(place, spec.Incarnation)
	p.birth = birth(pid)
	if err != nil || !ok || !p.adopt(pid) {
		s.log.Warn("a process of this data folder is not known, and left alone", "pid", pid, "err", err)
		return
	}
	if other := s.processes[place]; other != nil {
		s.log.Warn("a second process was found for a place; it is ended", "place", place.String(), "pid", pid)
		kill(p.os) //nolint:errcheck // it may have ended
		return
	}
	s.processes[place] = p
	ev.Alive = append(ev.Alive, slots.Alive{Place: place, Epoch: spec.Epoch, Incarnation: spec.Incarnation, PID: pid, Birth: p.birth})
}

// placeOf returns the place of a process.
func placeOf(spec cluster.Process) (slots.Place, bool) {
	if _, ok := cluster.NameOfID(spec.ID); !ok {
		return slots.Place{}, false
	}
	if spec.Role == cluster.RoleMaster {
		return slots.Place{ID: spec.ID, Role: spec.Role}, true
	}
	var port int
	_, name, _ := strings.Cut(spec.Worker, "/")
	_, err := fmt.Sscanf(name, "%d", &port)
	return slots.Place{ID: spec.ID, Role: cluster.RoleWorker, Port: port}, err == nil && port > 0
}

// holdAgain keeps what a place uses in the cache.
func (s *Supervisor) holdAgain(slot slots.Slot) {
	a, ok := s.table.Assignment(slot.ID)
	if !ok {
		return
	}
	s.cache.hold(slot.Place, filepath.Join(s.dir, binariesDir, strings.ToLower(a.Version.Binary.SHA256)))
	for _, path := range list(s.folder(slot.Place)) {
		if target, err := os.Readlink(path); err == nil {
			s.cache.hold(slot.Place, target)
		}
	}
}
