// Package death lets a program kill itself at a named step of the commit protocol:
//
//	CRASH_STEP=head.before CRASH_OCCURRENCE=3 program …
//
// On standard error it names each step when it comes for the first time, and the one
// it dies at. Without CRASH_STEP the program runs to its end. With CRASH_HOLD=FILE it does
// not move the head while somebody holds a lock on FILE.
package death

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/isobar-io/isobar/internal/filelock"
)

// FromEnvironment returns a hook for the engine that kills the process at the step
// that the environment names, and writes the steps to log.
func FromEnvironment(log io.Writer) (hook func(step string), err error) {
	d := &death{log: log, step: os.Getenv("CRASH_STEP"), hold: os.Getenv("CRASH_HOLD"), seen: map[string]int{}}
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
	hold       string

	mu   sync.Mutex
	seen map[string]int
}

func (d *death) hook(step string) {
	if step == "head.before" && d.hold != "" {
		d.wait()
	}
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

// wait waits for the lock on the file that holds the program up.
func (d *death) wait() {
	f, err := os.OpenFile(d.hold, os.O_RDWR|os.O_CREATE, 0o666)
	if err == nil {
		err = errors.Join(filelock.Lock(f), f.Close())
	}
	if err != nil {
		panic(fmt.Sprintf("the process cannot wait: %v", err))
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
