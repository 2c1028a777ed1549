package process

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/internal/atomicfile"
)

// toldNote is a file in the folder of a topology master: what it was told last.
const toldNote = "told.json"

// noted is what the next topology master goes by while the coordination store is away: a
// topology that was deactivated stays so, and its workers find their master where it was.
type noted struct {
	Of     string           `json:"of"` // as noteOf has it
	Active bool             `json:"active"`
	Place  map[string][]int `json:"place,omitempty"`
	Port   int              `json:"port,omitempty"`
}

// recall returns what a former topology master of the same epoch has noted.
func recall(p cluster.Process) (n noted, ok bool) {
	text, err := os.ReadFile(filepath.Join(p.Dir, toldNote))
	ok = p.Dir != "" && err == nil && json.Unmarshal(text, &n) == nil && n.Of == noteOf(p)
	return n, ok
}

// notedOf returns what a topology master begins with. If nothing is known, it is active.
func notedOf(c Config) noted {
	if former, ok := recall(c.Process); ok {
		return former
	}
	return noted{Of: noteOf(c.Process), Active: true}
}

// note replaces the file. One that cannot be written leaves what was noted before.
func (n noted) note(dir string) error {
	if dir == "" {
		return nil
	}
	return atomicfile.Write(filepath.Join(dir, toldNote), func(w io.Writer) error { return json.NewEncoder(w).Encode(n) })
}

// remember notes a change of what this topology master is told.
func (m *leader) remember(change func(*noted)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.noted
	if change(&next); next.Active == m.noted.Active && next.Port == m.noted.Port && maps.EqualFunc(next.Place, m.noted.Place, slices.Equal) {
		return
	}
	m.noted = next
	if err := next.note(m.Dir); err != nil {
		m.Logger.Warn("cannot note what this topology master was told", "err", err)
	}
}

// preferred returns where to listen, the port of the former topology master first, so that
// workers find this one there. others: any other will do as well.
func preferred(c Config) (ports []int, others bool) {
	n, ok := recall(c.Process)
	switch {
	case !ok || n.Port == 0:
		return c.Ports, false
	case len(c.Ports) == 0:
		return []int{n.Port}, true
	case !slices.Contains(c.Ports, n.Port):
		return c.Ports, false
	}
	rest := slices.DeleteFunc(slices.Clone(c.Ports), func(port int) bool { return port == n.Port })
	return append([]int{n.Port}, rest...), false
}

// listenAgain listens for workers.
func listenAgain(c Config) (net.Listener, error) {
	ports, others := preferred(c)
	l, err := listenFirst(c.Listen, ports, c.TLS)
	if err != nil && others {
		return listen(c.Listen, c.TLS)
	}
	return l, err
}

// portOf returns the port of a listener.
func portOf(l net.Listener) int {
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(text) // 0 is none
	return port
}
