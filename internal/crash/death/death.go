// Package death lets a program kill itself at a named step of the commit protocol:
//
//	CRASH_STEP=head.before CRASH_OCCURRENCE=3 program …
//
// On standard error it names each step when it comes for the first time, and the one
// it dies at. Without CRASH_STEP the program runs to its end.
package death

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

// FromEnvironment returns a hook for the engine that kills the process at the step
// that the environment names, and writes the steps to log.
func FromEnvironment(log io.Writer) (hook func(step string), err error) {
	d := &death{log: log, step: os.Getenv("CRASH_STEP"), seen: map[string]int{}}
	if d.step != "" {
		n, err := strconv.Atoi(os.Getenv("CRASH_OCCURRENCE"))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("CRASH_OCCURRENCE is %q: it must be a number above 0", os.Getenv("CRASH_OCCURRENCE"))
		}
		d.occurrence = n
	}
	return d.hook, nil
}

type death struct {
	log        io.Writer
	step       string
	occurrence int

	mu   sync.Mutex
	seen map[string]int
}

func (d *death) hook(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[step]++
	n := d.seen[step]
	if n == 1 {
		fmt.Fprintln(d.log, "step", step)
	}
	if step == d.step && n == d.occurrence {
		fmt.Fprintln(d.log, "dies at", step, n)
		die()
	}
}

// die ends the process as SIGKILL does: nothing is flushed, closed or cleaned up.
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("broken invariant: the process cannot kill itself: %v", err))
	}
	select {} // until the kill arrives
}
