package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/txn"
)

// Every event that a task posts arrives as it was posted.
func TestEventsTravel(t *testing.T) {
	snapshot := checkpoint.TaskSnapshot{
		Component: "c", Index: 1, Finished: true,
		Handles:   []txn.Handle{{Batch: 3, Generation: 2, Data: []byte("h")}},
		Positions: []txn.Position{{Partition: "p", Data: []byte{0, 1}}},
	}
	for _, ev := range []checkpoint.Event{
		checkpoint.TaskReady{Generation: 7, Task: 3},
		checkpoint.InputChanged{Generation: 7, Task: 3, After: 9},
		checkpoint.SnapshotReported{Generation: 7, Task: 3, Batch: 9, Snapshot: snapshot},
		checkpoint.SpoutFinished{Generation: 7, Task: 3},
		checkpoint.AckConfirmed{Generation: 7, Task: 3, Batch: 9, Last: true},
		checkpoint.CheckpointRequested{},
	} {
		e, n := encodeEvent(ev)
		m := sent(t, message{Kind: kindEvent, Generation: n, Event: &e})
		got, err := m.Event.decode(m.Generation)
		if err != nil || !reflect.DeepEqual(got, ev) {
			t.Errorf("%#v arrives as %#v (%v)", ev, got, err)
		}
	}
}

// sent returns a message as the other end gets it.
func sent(t *testing.T, m message) message {
	t.Helper()
	var buf bytes.Buffer
	if err := write(&buf, m, maxMessage); err != nil {
		t.Fatal(err)
	}
	got, err := read(&buf, maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The topology master treats an error of a worker as it would one of its own process.
func TestErrorsKeepTheirNature(t *testing.T) {
	key := poison.Key{Component: "c", Source: "s", SourceStream: "default", Hash: 1<<63 + 5}
	for _, err := range []error{
		errors.New("plain"),
		txn.Fatal(errors.New("for good")),
		fmt.Errorf("object x: %w", checkpoint.ErrDamaged),
		fmt.Errorf("object x: %w", checkpoint.ErrNotFound),
		fmt.Errorf("object x: %w", checkpoint.ErrNewer),
		fmt.Errorf("task: %w", &task.PanicError{Where: "c", Value: "boom", Stack: []byte("stack")}),
		fmt.Errorf("task: %w", &poison.TupleError{Component: "c", Key: key, Err: errors.New("bad tuple")}),
	} {
		e, n := encodeEvent(checkpoint.TaskFailed{Generation: 7, Task: 3, Err: err})
		ev, derr := sent(t, message{Kind: kindEvent, Generation: n, Event: &e}).Event.decode(n)
		if derr != nil {
			t.Fatal(derr)
		}
		got := ev.(checkpoint.TaskFailed).Err
		if got.Error() != err.Error() || txn.IsFatal(got) != txn.IsFatal(err) {
			t.Errorf("%v arrives as %v", err, got)
		}
		for _, is := range []error{checkpoint.ErrDamaged, checkpoint.ErrNotFound, checkpoint.ErrNewer} {
			if errors.Is(got, is) != errors.Is(err, is) {
				t.Errorf("%v arrives as %v: whether it is %v", err, got, is)
			}
		}
		var p, q *task.PanicError
		if errors.As(err, &p) != errors.As(got, &q) || p != nil && (p.Where != q.Where || string(p.Stack) != string(q.Stack)) {
			t.Errorf("%v arrives as %#v: the panic", err, got)
		}
		var a, b *poison.TupleError
		if errors.As(err, &a) != errors.As(got, &b) || a != nil && (a.Key != b.Key || a.Err.Error() != b.Err.Error()) {
			t.Errorf("%v arrives as %#v: the tuple", err, got)
		}
	}
}

// Case: what was too large for a connection cost the connection, with all that used it. A
// task that hands in too much fails, by name, and what others say arrives.
func TestTooLargeAMessageIsAnErrorOfItsTask(t *testing.T) {
	a, b := net.Pipe()
	c := newConn(a, time.Minute)
	c.limit = 500
	c.open()
	defer func() {
		c.end(errQuit)
		c.wait()
	}()
	large := checkpoint.SnapshotReported{Generation: 7, Task: 3, Batch: 9, Snapshot: checkpoint.TaskSnapshot{
		Component: "c", Handles: []txn.Handle{{Batch: 9, Generation: 7, Data: make([]byte, 1000)}},
	}}
	for _, ev := range []checkpoint.Event{large, checkpoint.TaskReady{Generation: 7, Task: 4}} {
		e, n := encodeEvent(ev)
		c.send(message{Kind: kindEvent, Generation: n, Event: &e})
	}
	var got [2]checkpoint.Event
	for i := range got {
		m, err := read(b, maxMessage)
		if err == nil {
			got[i], err = m.Event.decode(m.Generation)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, ok := got[0].(checkpoint.TaskFailed)
	if !ok || f.Generation != 7 || f.Task != 3 || !strings.Contains(f.Err.Error(), "and 500 are allowed: what a task hands in with a checkpoint") {
		t.Errorf("in the place of the large one comes %#v", got[0])
	}
	if got[1] != (checkpoint.TaskReady{Generation: 7, Task: 4}) {
		t.Errorf("after it comes %#v", got[1])
	}
}

// What does not fit is an error, and takes no more memory than has come.
func FuzzRead(f *testing.F) {
	var buf bytes.Buffer
	e, n := encodeEvent(checkpoint.TaskFailed{Generation: 1, Task: 1, Err: errors.New("x")})
	for _, m := range []message{{Kind: kindPing}, {Kind: kindEvent, Generation: n, Event: &e}, {Kind: kindHello, Hello: &hello{Worker: "w"}}, {Kind: kindUnlinked, Generation: n, Unlinked: []string{"w", "w"}}} {
		buf.Reset()
		if err := write(&buf, m, maxMessage); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{0, 0, 0, 9, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			m, err := read(r, 1<<20)
			if err != nil {
				return
			}
			if m.Event != nil {
				if ev, err := m.Event.decode(m.Generation); err == nil {
					again, n := encodeEvent(ev)
					if back, err := again.decode(n); err != nil || fmt.Sprint(back) != fmt.Sprint(ev) {
						t.Errorf("%v becomes %v (%v)", ev, back, err)
					}
				}
			}
			if r.Len() == 0 {
				if _, err := read(r, 1<<20); !errors.Is(err, io.EOF) {
					t.Errorf("at the end: %v", err)
				}
				return
			}
		}
	})
}
