package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/isobar-io/isobar/engine"
)

// plainEvery is how often progress is shown when the output is not a terminal.
const plainEvery = 10 * time.Second

// screen shows progress in one line that is written over on a terminal, and in a
// line now and then elsewhere. Everything else goes above it.
type screen struct {
	mu     sync.Mutex
	w      io.Writer
	tty    bool
	line   func(engine.Progress) string
	status string // what is shown on the terminal's last line
	shown  time.Duration
}

func newScreen(w io.Writer, line func(engine.Progress) string) *screen {
	if line == nil {
		line = defaultLine
	}
	f, ok := w.(*os.File)
	return &screen{w: w, tty: ok && term.IsTerminal(int(f.Fd())), line: line}
}

// Write writes other output above the progress line.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	n, err := s.w.Write(b)
	s.draw()
	return n, err
}

func (s *screen) clear() {
	if s.tty && s.status != "" {
		fmt.Fprint(s.w, "\r\x1b[K")
	}
}

func (s *screen) draw() {
	if s.tty && s.status != "" {
		fmt.Fprint(s.w, s.status)
	}
}

// progress shows p.
func (s *screen) progress(p engine.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.Final:
		s.clear()
		s.status = ""
		fmt.Fprintln(s.w, s.line(p))
	case s.tty:
		s.clear()
		s.status = s.line(p)
		s.draw()
	case p.Elapsed-s.shown >= plainEvery:
		s.shown = p.Elapsed
		fmt.Fprintln(s.w, s.line(p))
	}
}

// defaultLine names every component with its tuples.
func defaultLine(p engine.Progress) string {
	var parts []string
	for _, c := range p.Components {
		n := c.Executed
		if n == 0 {
			n = c.Emitted
		}
		parts = append(parts, fmt.Sprintf("%s %s", c.ID, Count(n)))
	}
	return strings.Join(parts, ", ") + Checkpoints(p)
}

// Checkpoints returns how a progress line ends: the time, the checkpoints, and the
// restarts if there were any.
func Checkpoints(p engine.Progress) string {
	s := fmt.Sprintf(" in %.1fs, %d checkpoints", p.Elapsed.Seconds(), p.Committed)
	if p.Restarts > 0 {
		s += fmt.Sprintf(", %d restarts", p.Restarts)
	}
	return s
}

// Count returns a number with its digits in groups of three.
func Count(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
