package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
)

// An hour passes on a link that has nothing to do, or whose receiver does not read.
func TestLinkLives(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnds(t, 1, newNetwork().config(t))
			c := e.channel(1, 10, 4)
			e.connect(t)
			if stuck {
				go script{frames: 100, tuples: 10, bytes: 1000}.play(c.out)
			}
			time.Sleep(time.Hour)
			if len(e.failed) > 0 {
				t.Fatalf("stuck %t: %v", stuck, <-e.failed)
			}
			if stuck {
				if err := (script{frames: 100, tuples: 10, bytes: 1000}).check(c, 0, 100); err != nil {
					t.Error(err)
				}
			}
			close(e.done)
		})
	}
}

// An end that falls silent, without the connection being closed, is found out by the
// other one after the lease time.
func TestSilentEndIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 7 * time.Second
		from := make(chan struct{})
		w := newNetwork()
		w.disturb = func(c net.Conn) net.Conn { return &frozen{Conn: c, from: from, shut: make(chan struct{})} }
		e := newEnds(t, 1, func(c *Config) {
			w.config(t)(c)
			c.Lease = lease
		})
		e.channel(1, 10, 4)
		e.connect(t)
		time.Sleep(time.Minute)
		close(from)
		began := time.Now()
		for range 2 {
			err := <-e.failed
			took := time.Since(began)
			if took < lease/2 || took > lease*3/2 || !strings.Contains(err.Error(), "nothing came for 7s") && !strings.Contains(err.Error(), "closed") {
				t.Errorf("after %v: %v", took, err)
			}
		}
	})
}

// Whichever byte is changed on its way, or after whichever the connection is cut: what
// the task reads is what was sent up to some frame, and then it is told.
func TestNothingIsLostInSilence(t *testing.T) {
	s := script{frames: 6, tuples: 3, bytes: 12}
	for _, cut := range []bool{false, true} {
		broken, sizes := 0, 0
		for at := 0; ; at++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork()
				w.disturb = func(c net.Conn) net.Conn { return &faulty{Conn: c, at: at, cut: cut} }
				e := newEnds(t, 1, w.config(t))
				c := e.channel(1, 10, 4)
				c.out.wait = func(bool) {}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				go func() { _ = e.gb.Connect(ctx) }() // one of the two is told
				if err := e.ga.Connect(ctx); err != nil {
					reached = true
					return // the greeting was hit, and told so; then it was refused
				}
				synctest.Wait()
				defer close(e.done)
				go s.play(c.out)
				for i := range s.frames {
					err := s.checkOr(c, i, e.failed)
					if err == nil {
						continue
					}
					if !strings.Contains(err.Error(), "link to worker") && !strings.Contains(err.Error(), "decode a frame") {
						t.Errorf("cut %t at byte %d: %v", cut, at, err)
					}
					reached = true
					broken++
					return
				}
				synctest.Wait()
				// All has arrived; the disturbance is in what comes later, or never.
				reached = len(e.failed) > 0
			})
			if sizes++; !reached {
				break
			}
		}
		if broken < 500 {
			t.Errorf("cut %t: only %d of %d places were among the frames", cut, broken, sizes)
		}
	}
}

// checkOr is check of one frame that gives up when a generation fails.
func (s script) checkOr(c *channel, i int, failed <-chan error) error {
	for !c.in.Ready() {
		c.bell.Arm()
		if c.in.Ready() {
			break
		}
		select {
		case <-c.bell.C():
		case err := <-failed:
			if !c.in.Ready() {
				return err
			}
		}
	}
	c.bell.Disarm()
	return s.check(c, i, i+1)
}

// A cut fails every generation of both ends once; a sender that waits goes on waiting
// for the end of its generation; the next generation connects anew.
func TestCutFailsAllGenerationsOnce(t *testing.T) {
	e := newEnds(t, 1, nil)
	first := e.channel(1, 10, 2)
	e.connect(t)
	firstDone := e.done
	all := []*Generation{e.ga, e.gb}
	e.generation(t, 2)
	second := e.channel(1, 10, 2)
	e.connect(t)
	all = append(all, e.ga, e.gb)
	waits := make(chan bool, 100)
	first.out.wait = func(w bool) { waits <- w }
	sent := make(chan struct{})
	go func() {
		script{frames: 10, tuples: 1}.play(first.out)
		close(sent)
	}()
	go script{frames: 10, tuples: 1}.play(second.out)
	<-waits
	first.out.conn.Load().raw.Close()
	var worker string
	named := map[string]int{}
	for range all {
		told := <-e.failed
		if _, err := fmt.Sscanf(told.Error(), "link to worker %q", &worker); err != nil {
			t.Errorf("%v: %v", told, err)
		}
		named[worker]++
	}
	if named["a"] != 2 || named["b"] != 2 {
		t.Errorf("told of workers: %v", named)
	}
	close(firstDone)
	close(e.done)
	<-sent
	for _, g := range all {
		g.Close()
	}
	if len(e.failed) > 0 {
		t.Error("a generation was told twice:", <-e.failed)
	}
	e.a.mu.Lock()
	if e.a.neighbour("b").conn != nil {
		t.Error("the connection is not forgotten")
	}
	e.a.mu.Unlock()
	e.generation(t, 3)
	c := e.channel(1, 10, 4)
	e.connect(t)
	s := script{frames: 100, tuples: 10, bytes: 10}
	go s.play(c.out)
	if err := s.check(c, 0, s.frames); err != nil {
		t.Error(err)
	}
	close(e.done)
}

// A generation that has not failed hears nothing any more once it is closed.
func TestClosedGenerationHearsNothing(t *testing.T) {
	e := newEnds(t, 1, nil)
	e.channel(1, 10, 2)
	e.connect(t)
	e.ga.Close()
	e.ga.Close()
	e.gb.Close()
	e.a.Close()
	e.b.Close()
	if len(e.failed) > 0 {
		t.Error(<-e.failed)
	}
}

// A connection that comes in the middle of the end of a generation does not get it.
func TestClosedGenerationIsNotBound(t *testing.T) {
	e := newEnds(t, 1, nil)
	c := e.channel(1, 10, 2)
	e.connect(t)
	e.ga.Close()
	link := c.out.conn.Load()
	e.a.mu.Lock()
	bound := e.ga.bind(link)
	e.a.mu.Unlock()
	link.mu.Lock()
	defer link.mu.Unlock()
	if bound || link.generations[e.ga] {
		t.Error("it is bound")
	}
}

// When a node stops, the other end is told why.
func TestStopIsTold(t *testing.T) {
	e := newEnds(t, 1, nil)
	e.channel(1, 10, 2)
	e.connect(t)
	e.a.Close()
	told := fmt.Sprint(<-e.failed, <-e.failed)
	for _, want := range []string{"this worker closes its links", `worker \"a\" stops`} {
		if !strings.Contains(told, want) {
			t.Errorf("%s is not told: %s", want, told)
		}
	}
	if _, err := e.a.Generation(2, nil, nil); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

// What a zombie still sends is dropped and counted; the link goes on.
func TestOlderGenerationIsDropped(t *testing.T) {
	e := newEnds(t, 1, nil)
	old, oldGeneration := e.channel(1, 10, 4), e.gb
	unopened := e.channel(2, 10, 4)
	e.connect(t)
	oldDone := e.done
	s := script{frames: 4, tuples: 1, bytes: 100}
	s.play(old.out)
	if err := s.check(old, 0, 4); err != nil {
		t.Fatal(err)
	}
	oldGeneration.Close()
	e.generation(t, 2)
	c := e.channel(1, 10, 4)
	e.connect(t)
	// All of the window of one, and one that only now is opened.
	go script{frames: 20, tuples: 1, bytes: 100}.play(old.out)
	go script{frames: 20, tuples: 1, bytes: 100}.play(unopened.out)
	many := script{frames: 500, tuples: 1, bytes: 100}
	go many.play(c.out)
	if err := many.check(c, 0, many.frames); err != nil {
		t.Fatal(err)
	}
	for e.b.Stats().Stale < 4 { // three frames or more of the one, the other itself
		many.frames = 1
		many.play(c.out)
		if err := many.check(c, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if old.in.Ready() || unopened.in.Ready() || len(e.failed) > 0 {
		t.Error("a generation that is over was heard")
	}
	close(oldDone)
	close(e.done)
}

// A channel of a generation that its receiver does not know can only be a mistake.
func TestNewerGenerationEndsTheLink(t *testing.T) {
	e := newEnds(t, 1, nil)
	e.channel(1, 10, 4)
	e.connect(t)
	done := make(chan struct{})
	defer close(done)
	later, err := e.a.Generation(2, map[string]Peer{"b": as(e.b)}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	out := later.Outbound("b", 10, link.Config{SourceTask: 1, Done: done}, nil)
	if err := later.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := out.NewFrame()
	one(f, tuple.String("early"))
	out.Send(f)
	for range 2 {
		if err := <-e.failed; !strings.Contains(err.Error(), "opened before it is known") {
			t.Error(err)
		}
	}
}
