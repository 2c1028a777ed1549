package sim

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// daemon is a nimbus: the shell around the decisions of package nimbus. It leads as long as
// it has the lease.
type daemon struct {
	p       *process
	machine *machine
	w       *world
	name    string

	seen  uint64 // revision of another's lease, and since when
	since time.Duration
	term  int // goes up when it begins or ends to lead

	leads    bool
	open     bool // it has read what there is
	revision uint64
	beat     uint64
	until    time.Duration // by its clock: how long it leads at least
	silent   bool          // the store has not answered

	kept    map[string]entry // what it has read or written
	heard   time.Duration    // before that nobody is judged
	last    map[string]time.Duration
	placed  map[string]time.Duration // when a topology master was given its supervisor, by id
	runs    map[string]cluster.RunStatus
	began   map[string]time.Duration // when this process of the topology master was first heard of
	unused  map[string]time.Duration // assignments without a topology, and since when
	cleaned time.Duration            // when everything was last read to find those
	stale   bool                     // a write has failed
	away    bool                     // the store did not answer
	busy    bool                     // something is being read or written
	looks   int                      // only the last look that was asked for counts
}

const keyLeader = cluster.BucketNimbus + "/" + cluster.KeyLeader

// start starts the daemon on its machine.
func (d *daemon) start() {
	if d.w.fleet.over || d.p != nil && !d.p.dead {
		return
	}
	if d.machine.down {
		d.w.queue.push(d.w.now+time.Second, d.start)
		return
	}
	d.p = newProcess(d.machine, d.name)
	d.leads, d.open, d.seen = false, false, 0
	d.term++
	d.p.deliver(d.stand)
}

// crash ends it; another one is started later.
func (d *daemon) crash() {
	if d.p.dead {
		return
	}
	d.w.count("nimbus crash")
	d.p.stop(false)
	d.w.queue.push(d.w.now+d.w.around(2*time.Second), d.start)
}

func (d *daemon) records() *records { return d.w.fleet.records }

// stand waits for the lease.
func (d *daemon) stand() {
	length := d.w.fleet.timing.Reign
	now := d.p.clock()
	again := func() { d.w.after(length/3, d.stand) }
	write := func(revision uint64) {
		d.attempt(now, revision, func(err error) {
			if err != nil {
				again()
				return
			}
			d.lead()
		})
	}
	d.records().get(keyLeader, func(e entry, err error) {
		switch {
		case errors.Is(err, errAbsent):
			write(0)
		case err != nil:
			d.seen = 0 // while the store is away nobody's lease ends
			again()
		case e.revision != d.seen:
			d.seen, d.since = e.revision, now
			again()
		case now-d.since >= length:
			write(e.revision)
		default:
			again()
		}
	})
}

// attempt writes the lease anew. It counts from before that; a tenth is for clocks that
// differ in speed.
func (d *daemon) attempt(sent time.Duration, over uint64, reply func(error)) {
	length := d.w.fleet.timing.Reign
	d.beat++
	d.records().update(keyLeader, cluster.Lease{Holder: d.p.name, Beat: d.beat}, over, func(revision uint64, err error) {
		if d.silent = err != nil; err == nil {
			d.revision, d.until = revision, sent+length-length/10
		}
		reply(err)
	})
}

func (d *daemon) valid() bool { return d.leads && d.p.clock() < d.until }

// in returns do for this term: it does nothing in a later one.
func (d *daemon) in(do func()) func() {
	term := d.term
	return func() {
		if d.term == term {
			do()
		}
	}
}

func (d *daemon) lead() {
	d.term++
	d.leads, d.open, d.stale, d.away, d.busy = true, false, false, false, false
	d.kept, d.last, d.placed = map[string]entry{}, map[string]time.Duration{}, map[string]time.Duration{}
	d.unused = map[string]time.Duration{}
	d.runs, d.began = map[string]cluster.RunStatus{}, map[string]time.Duration{}
	d.w.count("nimbus leads")
	d.w.tracef("%s: leads", d.p.name)
	d.w.after(d.w.fleet.timing.Reign/3, d.in(d.keep))
	d.read(func() {
		d.claim(d.claims(), func() {
			d.open, d.heard, d.cleaned = true, d.p.clock(), d.p.clock()
			d.records().watch(cluster.BucketSupervisors+"/", d.see())
			d.records().watch("topology-", d.see())
			d.look()
		})
	})
}

// depose ends its leading.
func (d *daemon) depose(why string) {
	if !d.leads {
		return
	}
	d.w.count("nimbus deposed")
	d.w.tracef("%s: leads no longer: %s", d.p.name, why)
	d.term++
	d.leads, d.seen = false, 0
	d.w.after(d.w.fleet.timing.Reign/3, d.stand)
}

// keep renews the lease.
func (d *daemon) keep() {
	length := d.w.fleet.timing.Reign
	if !d.valid() {
		d.depose("its lease is over")
		return
	}
	term := d.term
	d.attempt(d.p.clock(), d.revision, func(err error) {
		switch {
		case d.term != term:
		case err == nil:
			d.w.after(length/3, d.in(d.keep))
		case errors.Is(err, errChanged), errors.Is(err, errAbsent):
			d.recognise()
		default:
			d.w.after(length/15, d.in(d.keep))
		}
	})
}

// recognise goes on from a lease that it has written without having heard so.
func (d *daemon) recognise() {
	term := d.term
	d.records().get(keyLeader, func(e entry, err error) {
		held, ok := e.value.(cluster.Lease)
		switch {
		case d.term != term:
		case err != nil && !errors.Is(err, errAbsent):
			d.w.after(d.w.fleet.timing.Reign/15, d.in(d.keep))
		case err == nil && ok && held.Holder == d.p.name:
			d.revision = e.revision
			d.w.after(d.w.fleet.timing.Reign/15, d.in(d.keep))
		default:
			d.depose("another one has taken the lease")
		}
	})
}

// read reads everything, and again until that succeeds.
func (d *daemon) read(then func()) {
	term := d.term
	d.busy = true
	d.records().list("", true, func(all []entry, err error) {
		switch {
		case d.term != term:
		case err != nil:
			d.away = true
			d.w.after(300*time.Millisecond, d.in(func() { d.read(then) }))
		default:
			kept := map[string]entry{}
			for _, e := range all {
				kept[e.key] = e
				d.kept = kept
				d.heed(e, entry{})
			}
			d.kept, d.busy = kept, false
			then()
		}
	})
}

// claims returns the keys that a leader writes as they are when it begins, so that whatever
// an earlier one has under way is refused.
func (d *daemon) claims() []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(d.kept)) {
		bucket, name, _ := strings.Cut(key, "/")
		own := strings.HasPrefix(bucket, "topology-") && (name == cluster.KeyIntent || name == cluster.KeyAssignment)
		if own || bucket == cluster.BucketTopologies || bucket == cluster.BucketAssignments && name != cluster.KeyMark {
			keys = append(keys, key)
		}
	}
	return keys
}

func (d *daemon) claim(keys []string, then func()) {
	if len(keys) > 0 {
		d.write(keys[0], d.kept[keys[0]].value, func(err error) {
			if err != nil {
				d.depose("cannot claim what there is")
				return
			}
			d.claim(keys[1:], then)
		})
		return
	}
	if _, ok := d.kept[cluster.BucketAssignments+"/"+cluster.KeyMark]; ok {
		then()
		return
	}
	d.write(cluster.BucketAssignments+"/"+cluster.KeyMark, d.w.unique(), func(error) { then() })
}

// write replaces what was last seen under a key, if this nimbus still leads; nil deletes it.
func (d *daemon) write(key string, value any, then func(error)) {
	if !d.valid() {
		d.depose("its lease is over")
		return
	}
	term := d.term
	d.busy = true
	old := d.kept[key]
	if old.value == nil {
		old.revision = 0
	}
	d.records().update(key, value, old.revision, func(revision uint64, err error) {
		if d.term != term {
			return
		}
		d.busy = false
		if err == nil && !d.valid() {
			d.depose("its lease was over before it was answered")
			return
		}
		if err == nil {
			d.kept[key] = entry{key: key, value: value, revision: revision}
		}
		then(err)
	})
}

// see takes what watches say.
func (d *daemon) see() func(entry) {
	term := d.term
	return func(e entry) {
		switch {
		case d.term != term:
		case e.key == "":
			d.heard, d.last = d.p.clock(), map[string]time.Duration{} // the store may have been away
		default:
			old := d.kept[e.key]
			if old.revision >= e.revision {
				return
			}
			d.kept[e.key] = e
			who, news := d.heed(e, old)
			if who == "" {
				return
			}
			news = news || d.silence(who) > d.w.fleet.timing.Times.Supervisor
			if d.last[who] = d.p.clock(); news {
				d.look()
			}
		}
	}
}

// heed takes in a record that somebody else has written, and returns who that is, and
// whether there is anything to decide.
func (d *daemon) heed(e, old entry) (who string, news bool) {
	switch v := e.value.(type) {
	case cluster.Supervisor:
		was, ok := old.value.(cluster.Supervisor)
		return v.ID, !ok || was.Unhealthy != v.Unhealthy || !reflect.DeepEqual(was.Processes, v.Processes)
	case cluster.RunStatus:
		id, _ := strings.CutSuffix(strings.TrimPrefix(e.key, "topology-"), "/"+cluster.KeyStatus)
		was, ok := d.runs[id]
		if ok && (v.Epoch < was.Epoch || v.Epoch == was.Epoch && v.Incarnation < was.Incarnation) {
			return "", false
		}
		d.runs[id] = v
		if !ok || was.Epoch != v.Epoch || was.Incarnation != v.Incarnation {
			d.began[id] = d.p.clock()
			return "master of " + id, true
		}
		return "master of " + id, was.Phase != v.Phase || !slices.Equal(was.Workers, v.Workers) || d.changing(id)
	}
	return "", false
}

// changing reports whether the next checkpoint of a topology is waited for.
func (d *daemon) changing(id string) bool {
	for _, key := range d.keys(cluster.BucketTopologies + "/") {
		if t := d.kept[key].value.(cluster.Topology); t.ID == id {
			return t.Step != ""
		}
	}
	return false
}

// silence is how long somebody has not been heard of.
func (d *daemon) silence(who string) time.Duration {
	return d.p.clock() - max(d.last[who], d.heard)
}
