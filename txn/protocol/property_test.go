package protocol

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/txn"
)

// host is a task and a topology master that do what a Participant says, and check it.
type host struct {
	t   *rapid.T
	cfg Config
	p   *Participant
	now time.Duration

	finished, committed, received, acked txn.BatchID
	lastReceived                         map[txn.BatchID]bool // acknowledgements received as the last
	listed                               map[txn.BatchID]bool // handles not acknowledged
	call                                 Action
	wake                                 time.Duration
	acks, confirms                       int
}

func newHost(t *rapid.T) *host {
	h := &host{
		t:            t,
		cfg:          Config{Generation: 3, Ordered: rapid.Bool().Draw(t, "ordered"), RetryMin: 1, RetryMax: 4},
		lastReceived: map[txn.BatchID]bool{},
		listed:       map[txn.BatchID]bool{},
	}
	h.cfg.Restored = txn.BatchID(rapid.IntRange(0, 5).Draw(t, "restored"))
	for n := txn.BatchID(1); n <= h.cfg.Restored; n++ {
		if n == h.cfg.Restored || rapid.Bool().Draw(t, "listed") {
			h.cfg.Handles = append(h.cfg.Handles, txn.Handle{Batch: n, Generation: 2})
			h.listed[n] = true
		}
	}
	h.finished, h.committed, h.received = h.cfg.Restored, h.cfg.Restored, h.cfg.Restored
	h.p = New(h.cfg)
	return h
}

func (h *host) step(ev Event) {
	for _, a := range h.p.Step(h.now, ev) {
		h.check(a)
	}
}

func (h *host) check(a Action) {
	switch a := a.(type) {
	case Commit:
		if h.call != nil || a.Batch != h.committed+1 || a.Batch > h.finished {
			h.t.Fatalf("%+v with %+v outstanding and %d committed of %d", a, h.call, h.committed, h.finished)
		}
		if h.cfg.Ordered && a.Batch-1 > h.received {
			h.t.Fatalf("%+v when only %d is the committed batch", a, h.received)
		}
		h.call = a
	case Acknowledge:
		if h.call != nil || a.Batch > h.received || a.Batch < h.acked || a.Last != h.lastReceived[a.Batch] {
			h.t.Fatalf("%+v with %+v outstanding, %d received, %d acknowledged", a, h.call, h.received, h.acked)
		}
		h.call = a
	case Report:
		h.checkReport(a)
	case Confirm:
		if a.Batch != h.acked || a.Last && !h.lastReceived[a.Batch] {
			h.t.Fatalf("%+v when %d is acknowledged", a, h.acked)
		}
		h.confirms++
	case WakeAt:
		if a.At <= h.now {
			h.t.Fatalf("%+v at %v", a, h.now)
		}
		h.wake = a.At
	case Ignore, Fail:
		h.t.Fatalf("unexpected %+v", a)
	}
}

func (h *host) checkReport(a Report) {
	if a.Batch != h.committed {
		h.t.Fatalf("report of %d when %d is committed", a.Batch, h.committed)
	}
	var before txn.BatchID
	got := map[txn.BatchID]bool{}
	for _, x := range a.Handles {
		if x.Batch <= before || x.Batch != a.Batch && x.Batch <= h.acked {
			h.t.Fatalf("report of %d lists %d after %d, with %d acknowledged", a.Batch, x.Batch, before, h.acked)
		}
		before, got[x.Batch] = x.Batch, true
	}
	for n := range h.listed {
		if n > h.acked && !got[n] {
			h.t.Fatalf("report of %d does not list %d, which is not acknowledged", a.Batch, n)
		}
	}
	if !got[a.Batch] {
		h.t.Fatalf("report of %d does not list it", a.Batch)
	}
}

// resolve ends the outstanding call.
func (h *host) resolve(ok bool) {
	call := h.call
	h.call = nil
	switch call := call.(type) {
	case Commit:
		if !ok {
			h.step(CommitFailed{Batch: call.Batch, Err: errors.New("no")})
			return
		}
		h.committed = call.Batch
		h.listed[call.Batch] = true
		h.step(Committed{Batch: call.Batch})
	case Acknowledge:
		if !ok {
			h.step(AckFailed{Batch: call.Batch, Err: errors.New("no")})
			return
		}
		h.acked = call.Batch
		h.step(Acknowledged{call.Batch})
	}
}

func (h *host) acknowledge(n txn.BatchID, last bool) {
	h.acks++
	h.received = max(h.received, n)
	h.lastReceived[n] = h.lastReceived[n] || last
	h.step(AckReceived{Generation: 3, Batch: n, Last: last})
}

// Whatever fails and in whatever order things happen, a task commits its batches in
// order, lists every handle that is not acknowledged in each report, makes one call
// at a time, and in the end has done everything.
func TestParticipantKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHost(t)
		for range 80 {
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				h.finished++
				h.step(BatchFinished{h.finished})
			case 1, 2:
				h.resolve(rapid.IntRange(0, 3).Draw(t, "outcome") != 2)
			case 3:
				if h.committed > 0 {
					n := rapid.Uint64Range(1, uint64(h.committed)).Draw(t, "batch")
					h.acknowledge(txn.BatchID(n), rapid.Bool().Draw(t, "last"))
				}
			case 4:
				h.now += time.Duration(rapid.IntRange(0, 3).Draw(t, "time"))
				h.step(TimePassed{})
			case 5:
				h.now = max(h.now, h.wake)
				h.step(TimePassed{})
			}
		}
		for i := 0; h.call != nil || h.committed < h.finished || h.acked < h.received && h.acks > 0; i++ {
			if i > 500 {
				t.Fatalf("stuck: %d of %d committed, %d of %d acknowledged", h.committed, h.finished, h.acked, h.received)
			}
			h.resolve(true)
			h.now = max(h.now, h.wake)
			h.step(TimePassed{})
			if h.committed > 0 {
				h.acknowledge(h.committed, true)
			}
		}
		if h.received == 0 {
			return
		}
		h.confirms = 0
		h.acknowledge(h.received, true)
		if h.call != nil {
			h.resolve(true)
		}
		if h.confirms == 0 {
			t.Fatalf("batch %d is acknowledged and not confirmed", h.acked)
		}
	})
}
