package metamorphic

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/txn"
)

// life is one process: everything it does to the outside passes through moment, and
// all its user code through call. A process that dies is frozen instead: whoever comes
// by waits until it is thawed, as a process does that was stopped for long and taken
// for dead. What it then still does must be void.
type life struct {
	moments []*fuse
	stop    context.CancelFunc // asks the run to end

	mu       sync.Mutex
	seen     map[string]int
	troubles []trouble
	burnt    []string     // what happened, for the report
	acts     sync.RWMutex // held to read while something outside is changed
	frozen   atomic.Bool
	died     chan struct{}
	thawed   chan struct{}
}

// fuse is something that happens at a moment: the nth with a name, for the first time.
type fuse struct {
	moment string
	nth    int
	what   string
	do     func()
}

// trouble makes the calls with a name fail, from the nth on so many times.
type trouble struct {
	call  string
	nth   int
	times int
	how   how
}

type how int

const (
	fails how = iota
	panics
	failsForGood
)

func (t trouble) String() string {
	return fmt.Sprintf("%s %d+%d %s", t.call, t.nth, t.times, [...]string{"fails", "panics", "fails for good"}[t.how])
}

func newLife(troubles []trouble) *life {
	return &life{seen: map[string]int{}, troubles: troubles, died: make(chan struct{}), thawed: make(chan struct{})}
}

// moment is a step that can be the last, or the cause of something else.
func (l *life) moment(name string) {
	l.gate()
	l.mu.Lock()
	l.seen[name]++
	var due []func()
	for _, f := range l.moments {
		if f.do != nil && f.moment == name && l.seen[name] >= f.nth {
			due = append(due, f.do)
			l.burnt = append(l.burnt, f.what)
			f.do = nil
		}
	}
	l.mu.Unlock()
	for _, do := range due {
		do()
	}
	l.gate()
}

// call counts a call with a name, and says whether it is to fail.
func (l *life) call(name string) error {
	l.gate()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.count("call " + name)
	for _, t := range l.troubles {
		if t.call != name || n < t.nth || n >= t.nth+t.times {
			continue
		}
		l.burnt = append(l.burnt, t.String())
		err := fmt.Errorf("injected: %s", t)
		switch t.how {
		case panics:
			panic(err)
		case failsForGood:
			return txn.Fatal(err)
		case fails:
			return err
		}
	}
	return nil
}

func (l *life) count(name string) int {
	l.seen[name]++
	return l.seen[name]
}

func (l *life) gate() {
	if l.frozen.Load() {
		<-l.thawed
	}
}

// act does something to the outside, unless the process is dead: then it waits.
func (l *life) act(do func() error) error {
	for {
		l.gate()
		l.acts.RLock()
		if l.frozen.Load() {
			l.acts.RUnlock()
			continue
		}
		defer l.acts.RUnlock()
		return do()
	}
}

// die freezes the process, between its acts.
func (l *life) die() {
	l.frozen.Store(true)
	l.acts.Lock()
	defer l.acts.Unlock()
	close(l.died)
}

func (l *life) thaw() {
	l.stop()
	l.frozen.Store(false)
	close(l.thawed)
}

func (l *life) isFrozen() bool { return l.frozen.Load() }

// report tells what has happened, each thing once.
func (l *life) report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.burnt) == 0 {
		return "nothing happened"
	}
	return strings.Join(l.burnt, ", ")
}

// drag slows a component down: it rests at every nth tuple.
type drag struct {
	every int
	rest  time.Duration
}

func (d drag) take(ctx context.Context, n int) {
	if d.every == 0 || n%d.every != 0 {
		return
	}
	timer := time.NewTimer(d.rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
