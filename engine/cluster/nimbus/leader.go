package nimbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// leader is a nimbus that leads. Its loop owns all of it but what it hands to goroutines of
// its own: they send events and asks.
type leader struct {
	*Nimbus
	lease   *lease
	running *sync.WaitGroup

	topologies  *records[cluster.Topology] // by name
	assignments *records[cluster.Assignment]
	secrets     *records[cluster.Secrets]
	blobs       *records[cluster.BlobRecord]
	supervisors *records[cluster.Supervisor]
	own         map[string]*bucket // of each topology, by id

	heard   signs                // when supervisors and topology masters were last heard of
	placed  map[string]time.Time // when a topology master was given its supervisor, by id
	waiting map[string]string    // why a topology has not what it wants, by name
	unused  map[string]time.Time
	cleaned time.Time // when it was last looked for what nobody needs
	stale   bool      // a write has failed: all is read again before the next
	swept   time.Time // when the coordination store was last tidied up
	away    bool      // the store did not answer
	clock   clock     // deadlines are set and compared by it

	asks   chan ask
	events chan event
}

// bucket is that of one topology.
type bucket struct {
	*records[json.RawMessage]
	stop context.CancelFunc // of its watch
	run  *cluster.RunStatus
	// since is when this process of the topology master was first heard of.
	since time.Time
	// still is since when its master has told that it does not run; zero: it does.
	still time.Time
	// apart are the workers of the assignment of that number that are missed, unlinked the
	// pairs of them that do not reach each other.
	apart    spells[string]
	unlinked spells[[2]string]
	number   uint64
}

// note takes in what the topology master has told last of the workers of an assignment.
func (b *bucket) note(a cluster.Assignment, now time.Time) {
	if b.number != a.Number {
		b.forgive()
		b.number = a.Number
	}
	var missed []string
	for _, w := range a.Workers {
		if !slices.Contains(b.run.Workers, w.ID()) {
			missed = append(missed, w.ID())
		}
	}
	b.apart = b.apart.next(missed, now)
	b.unlinked = b.unlinked.next(b.run.Unlinked, now)
}

// forgive has whatever is held against workers count from now on.
func (b *bucket) forgive() { b.apart, b.unlinked = nil, nil }

// ask is a request for the loop.
type ask struct {
	do   func(ctx context.Context)
	done chan struct{}
}

// event is an entry that a watch has sent: of the bucket of a topology, or of supervisors.
type event struct {
	id    string // "": supervisors
	entry cluster.Entry
}

// signs are when somebody's record was last seen to change, by the leader's clock.
type signs struct {
	since time.Time // before that nobody is judged
	last  map[string]time.Time
}

func (s *signs) reset(now time.Time) { s.since, s.last = now, map[string]time.Time{} }

func (s *signs) sign(who string, now time.Time) { s.last[who] = now }

// heard reports whether somebody was heard of since it is counted.
func (s *signs) heard(who string) bool { return !s.last[who].Before(s.since) }

// silence is how long somebody has not been heard of.
func (s *signs) silence(who string, now time.Time) time.Duration {
	if s.heard(who) {
		return now.Sub(s.last[who])
	}
	return now.Sub(s.since)
}

// open reads what there is, and makes it this leader's own.
func (l *leader) open(ctx context.Context) error {
	var errs [5]error
	l.topologies, errs[0] = openRecords[cluster.Topology](ctx, l.Store, cluster.BucketTopologies, l.lease.fence)
	l.assignments, errs[1] = openRecords[cluster.Assignment](ctx, l.Store, cluster.BucketAssignments, l.lease.fence, cluster.KeyMark)
	l.secrets, errs[2] = openRecords[cluster.Secrets](ctx, l.Store, cluster.BucketSecrets, l.lease.fence)
	l.blobs, errs[3] = openRecords[cluster.BlobRecord](ctx, l.Store, cluster.BucketBlobs, l.lease.fence)
	l.supervisors, errs[4] = openRecords[cluster.Supervisor](ctx, l.Store, cluster.BucketSupervisors, l.lease.fence)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if err := l.mark(ctx); err != nil {
		return err
	}
	if err := errors.Join(l.topologies.claim(ctx), l.assignments.claim(ctx), l.secrets.claim(ctx), l.blobs.claim(ctx)); err != nil {
		return err
	}
	l.own, l.placed, l.waiting = map[string]*bucket{}, map[string]time.Time{}, map[string]string{}
	l.unused = map[string]time.Time{}
	l.heard.reset(time.Now())
	for _, t := range l.topologies.all() {
		_, err := l.bucketOf(ctx, t.ID)
		switch {
		case err == nil:
		case ctx.Err() != nil, errors.Is(err, errDeposed), errors.Is(err, cluster.ErrUnavailable), errors.Is(err, errMoved):
			return err
		default: // it is tried again, and must not keep the others from being led
			l.Log.Warn("a topology cannot be led", "topology", t.Name, "id", t.ID, "error", err)
		}
	}
	return l.watch(ctx, l.supervisors.bucket, "")
}

// mark makes sure that the bucket of assignments has its mark; see package cluster.
func (l *leader) mark(ctx context.Context) error {
	ctx, done, err := l.lease.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	if _, err = l.assignments.bucket.Create(ctx, cluster.KeyMark, []byte(randomText())); errors.Is(err, cluster.ErrExists) {
		return nil
	}
	return err
}

// bucketOf opens the bucket of a topology, and makes, claims and watches it if need be.
func (l *leader) bucketOf(ctx context.Context, id string) (*bucket, error) {
	if b, ok := l.own[id]; ok {
		return b, nil
	}
	r, err := openRecords[json.RawMessage](ctx, l.Store, cluster.TopologyBucket(id), l.lease.fence)
	if err != nil {
		return nil, err
	}
	b := &bucket{records: r, since: time.Now()}
	for _, key := range []string{cluster.KeyIntent, cluster.KeyAssignment} {
		if value, ok := b.get(key); ok {
			if err := b.set(ctx, key, value); err != nil {
				return nil, err
			}
		}
	}
	b.read()
	ctx, b.stop = context.WithCancel(ctx)
	if err := l.watch(ctx, r.bucket, id); err != nil {
		b.stop()
		return nil, err
	}
	l.own[id] = b
	return b, nil
}

// read takes the status of the run from the records. What a process says whose place another
// has taken is not heard.
func (b *bucket) read() (heard bool) {
	text, ok := b.get(cluster.KeyStatus)
	var run cluster.RunStatus
	if !ok || json.Unmarshal(text, &run) != nil {
		return false
	}
	if b.run != nil && cmp.Or(cmp.Compare(run.Epoch, b.run.Epoch), cmp.Compare(run.Incarnation, b.run.Incarnation)) < 0 {
		return false
	}
	if run.Phase != cluster.PhaseStarting {
		b.still = time.Time{}
	} else if b.still.IsZero() {
		b.still = time.Now()
	}
	b.run = &run
	return true
}

// watch sends what a bucket's watch says to the loop, until ctx ends. That the watch of a
// topology's bucket has told what there is when it was opened is no outage.
func (l *leader) watch(ctx context.Context, b cluster.Bucket, id string) error {
	entries, err := b.Watch(ctx, "")
	if err != nil {
		return err
	}
	opening := id != ""
	l.running.Go(func() {
		for e := range entries {
			if e.Key == "" && opening {
				opening = false
				continue
			}
			select {
			case l.events <- event{id, e}:
			case <-ctx.Done():
			}
		}
	})
	return nil
}

// loop leads until ctx ends: it looks at everything, and again when something has changed
// that matters, or a deadline or the next look is due.
func (l *leader) loop(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(l.look(ctx))
		l.wait(ctx, timer.C)
		timer.Stop()
	}
}

// wait returns when there may be something to do.
func (l *leader) wait(ctx context.Context, due <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			return
		case <-l.Store.Changes():
			return
		case a := <-l.asks:
			a.do(ctx)
			close(a.done)
			return
		case e := <-l.events:
			if l.take(e) {
				return
			}
		}
	}
}

// take takes in what a watch has sent. It returns whether that calls for a look.
func (l *leader) take(e event) bool {
	now := time.Now()
	if e.entry.Key == "" {
		l.heard.reset(now) // the store may have been away
		return false
	}
	if e.id == "" {
		old, was := l.supervisors.get(e.entry.Key)
		news := !l.heard.heard(e.entry.Key) || l.silentSupervisor(e.entry.Key, now)
		if !l.supervisors.see(e.entry) || e.entry.Value == nil {
			return false
		}
		l.heard.sign(e.entry.Key, now)
		s, _ := l.supervisors.get(e.entry.Key)
		return !was || news || !sameSupervisor(old, s)
	}
	b, ok := l.own[e.id]
	if !ok || !b.see(e.entry) || e.entry.Key != cluster.KeyStatus {
		return false
	}
	return l.hear(e.id, b, now)
}

// hear takes in what a topology master tells. It returns whether that calls for a look.
func (l *leader) hear(id string, b *bucket, now time.Time) bool {
	old := b.run
	if !b.read() {
		return false
	}
	l.heard.sign(masterOf(id), now)
	if old == nil || old.Incarnation != b.run.Incarnation || old.Epoch != b.run.Epoch {
		b.since = now
		return true
	}
	return old.Phase != b.run.Phase || !slices.Equal(old.Workers, b.run.Workers) || !slices.Equal(old.Unlinked, b.run.Unlinked) || l.changing(id)
}

// masterOf names the topology master among those who are heard of.
func masterOf(id string) string { return "master of " + id }

// changing reports whether a topology's next checkpoint is waited for.
func (l *leader) changing(id string) bool {
	for _, t := range l.topologies.all() {
		if t.ID == id {
			return t.Step != ""
		}
	}
	return false
}

// sameSupervisor reports whether two heartbeats say the same but for the beat.
func sameSupervisor(a, b cluster.Supervisor) bool {
	running := func(s cluster.Supervisor) (all []string) {
		for _, p := range s.Processes {
			if p.MayRun() {
				all = append(all, fmt.Sprint(p.ID, p.Role, p.Port))
			}
		}
		return all
	}
	return a.Host == b.Host && a.Machine == b.Machine && a.Unhealthy == b.Unhealthy && a.OS == b.OS &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(running(a), running(b))
}

func (l *leader) silentSupervisor(id string, now time.Time) bool {
	return l.heard.silence(id, now) > l.limits.supervisor
}

// undecided reports whether there is a supervisor that has not been heard of and still has
// time: nobody is given work before, as all of it would go to the dead, or to who is heard first.
func (l *leader) undecided(now time.Time) bool {
	for id := range l.supervisors.all() {
		if !l.heard.heard(id) && !l.silentSupervisor(id, now) {
			return true
		}
	}
	return false
}

// present returns the supervisors that are alive.
func (l *leader) present(now time.Time) []cluster.Supervisor {
	var all []cluster.Supervisor
	for id, s := range l.supervisors.all() {
		if !l.silentSupervisor(id, now) {
			all = append(all, s)
		}
	}
	return all
}

// answer has the loop do what a request asks, and waits for that. What has to wait for
// others is done after, on the goroutine of the request.
func (l *leader) answer(ctx, asked context.Context, user string, body []byte) ([]byte, error) {
	var call cluster.Call
	if err := json.Unmarshal(body, &call); err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	var reply any
	var pass passing
	err := errDeposed
	a := ask{done: make(chan struct{}), do: func(ctx context.Context) {
		if err = l.ready(ctx); err == nil {
			reply, pass, err = l.handle(ctx, user, call)
		}
	}}
	select {
	case l.asks <- a:
		<-a.done
	case <-ctx.Done():
		return nil, errDeposed
	case <-asked.Done():
		return nil, asked.Err()
	}
	switch {
	case err != nil:
		return nil, err
	case pass != nil:
		return pass(asked)
	case reply == nil:
		return nil, nil
	}
	return json.Marshal(reply)
}

// passing passes a request on to somebody else.
type passing func(ctx context.Context) ([]byte, error)

// ready reports whether requests can be answered. What could not be done for one topology
// is no reason not to.
func (l *leader) ready(ctx context.Context) error {
	if (l.stale || l.away) && l.lease.valid() && !l.current(ctx) {
		return errors.New("nimbus waits for the coordination store: ask again")
	}
	if !l.lease.valid() {
		return errDeposed
	}
	return nil
}
