package remote

import (
	"sync"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
)

// gate passes on what the tasks of a generation post. That a task is ready waits until
// its links lead somewhere as well: only then may others send to it.
type gate struct {
	conn   *conn
	number tuple.Generation
	first  checkpoint.TaskID // in whose name links fail

	mu     sync.Mutex
	linked bool
	held   []checkpoint.Event
	broken bool
}

func (g *gate) post(ev checkpoint.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ready := ev.(checkpoint.TaskReady); ready && !g.linked {
		g.held = append(g.held, ev)
		return
	}
	g.send(ev)
}

func (g *gate) send(ev checkpoint.Event) {
	e, n := encodeEvent(ev)
	if n == 0 {
		n = g.number
	}
	g.conn.send(message{Kind: kindEvent, Generation: n, Event: &e})
}

// open is called when the links are there.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.linked = true
	for _, ev := range g.held {
		g.send(ev)
	}
	g.held = nil
}

// failed fails the generation because of a link.
func (g *gate) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.broken {
		g.broken = true
		g.send(checkpoint.TaskFailed{Generation: g.number, Task: g.first, Err: err})
	}
}
