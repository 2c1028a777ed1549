package natscluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"
)

// ErrDenied is what a client may not do.
type ErrDenied struct {
	Subject string // which the permissions of its credentials do not have
	Text    string // what the server said
}

func (e *ErrDenied) Error() string {
	return fmt.Sprintf("not allowed to use %q: %s", e.Subject, e.Text)
}

// denials tells whoever waits for an answer on a subject that the server has refused
// it: the refusal comes apart from the request, and the answer never.
type denials struct {
	mu      sync.Mutex
	next    int
	waiting map[int]waiter
}

type waiter struct {
	subject string
	cancel  context.CancelCauseFunc
}

// expect has cancel called if the subject is refused, until release is called.
func (d *denials) expect(subject string, cancel context.CancelCauseFunc) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[int]waiter{}
	}
	d.next++
	id := d.next
	d.waiting[id] = waiter{subject, cancel}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, id)
	}
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

// denial returns what the server has refused, nil if err is something else.
func denial(err error) *ErrDenied {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	m := quoted.FindStringSubmatch(err.Error()) // it names the subject
	if m == nil {
		return nil
	}
	return &ErrDenied{Subject: m[1], Text: err.Error()}
}

// refused tells those who wait for the subject.
func (d *denials) refused(denied *ErrDenied) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.waiting {
		if w.subject == denied.Subject {
			w.cancel(denied)
		}
	}
}
