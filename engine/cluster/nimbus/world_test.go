package nimbus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// world is a cluster without the nimbus: machines with supervisors that start what they are
// assigned, and topology masters that commit. It runs in a bubble.
type world struct {
	t        *testing.T
	server   *memcluster.Server
	running  sync.WaitGroup
	machines []*machine
	stop     context.CancelFunc
	ctx      context.Context

	mu      sync.Mutex
	workers map[string]bool // topology id, epoch and worker id of those that run
	heads   map[string]*head
	started []string           // processes that were ever started: role, id, epoch, place
	broken  map[string]string  // error of the versions that do not work, by SHA-256
	mute    map[string]bool    // versions that never commit
	stuck   map[string]bool    // versions that do not come up, though their workers are connected
	launch  time.Duration      // how long a topology master takes to say something
	idle    map[string]bool    // versions that have nothing to commit
	late    map[string]bool    // topologies, by id, that commit once more when their next epoch comes
	cuts    map[[2]string]bool // machines that are cut off from each other, by id
}

// head is the head of a topology in the checkpoint store.
type head struct {
	generation, batch int
	last              string // newest checkpoint
}

func (h *head) commit(generation int) {
	h.batch++
	h.last = fmt.Sprintf("%d.%d", generation, h.batch)
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, server: memcluster.New(), workers: map[string]bool{}, heads: map[string]*head{},
		broken: map[string]string{}, mute: map[string]bool{}, stuck: map[string]bool{}, idle: map[string]bool{}, late: map[string]bool{},
		cuts: map[[2]string]bool{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// close ends everything; a test calls it before its bubble ends.
func (w *world) close() {
	w.stop()
	w.running.Wait()
}

// machine is a machine with a supervisor.
type machine struct {
	w     *world
	id    string
	name  string
	ports []int
	store *memcluster.Store

	daemon    context.CancelFunc // ends the supervisor
	processes map[string]context.CancelFunc
	numbers   map[string]uint64 // of the assignments that they were started for
	mu        sync.Mutex
	hung      bool
	told      []cluster.ProcessStatus // what the supervisor has said last
}

// addMachine adds a machine whose supervisor has ports 1 to n.
func (w *world) addMachine(name string, n int) *machine {
	m := &machine{w: w, id: "sup-" + name, name: name, store: w.server.Connect("sup"), processes: map[string]context.CancelFunc{}, numbers: map[string]uint64{}}
	for p := range n {
		m.ports = append(m.ports, p+1)
	}
	m.startDaemon()
	w.machines = append(w.machines, m)
	return m
}

// hang makes the supervisor neither start nor end processes.
func (m *machine) hang() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hung = true
}

// hangStarting makes it hang while it is about to start those that it has.
func (m *machine) hangStarting() {
	m.hang()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = slices.Clone(m.told)
	for i := range m.told {
		m.told[i].Running, m.told[i].Coming = false, true
	}
}

func (m *machine) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hung = false
}

func (m *machine) startDaemon() {
	ctx, cancel := context.WithCancel(m.w.ctx)
	m.daemon = cancel
	m.w.running.Go(func() { m.supervise(ctx) })
}

// crash ends the supervisor and all processes at once.
func (m *machine) crash() {
	m.daemon()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, end := range m.processes {
		end()
	}
	clear(m.processes)
}

func (m *machine) supervise(ctx context.Context) {
	known := map[string]cluster.Assignment{}
	mark := ""
	for beat := uint64(0); ctx.Err() == nil; beat++ {
		if b, err := m.store.Bucket(ctx, cluster.BucketAssignments, true); err == nil {
			if entries, err := b.List(ctx); err == nil {
				known, mark = heed(known, mark, entries)
			}
		}
		status, changed := m.sync(known)
		if beat%5 == 0 || changed {
			m.beat(ctx, beat, status)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// heed follows the rule of package cluster about assignments that are not there.
func heed(known map[string]cluster.Assignment, mark string, entries []cluster.Entry) (map[string]cluster.Assignment, string) {
	now, named, nowMark := map[string]cluster.Assignment{}, map[string]bool{}, ""
	for _, e := range entries {
		var a cluster.Assignment
		switch {
		case e.Key == cluster.KeyMark:
			nowMark = string(e.Value)
		case json.Unmarshal(e.Value, &a) == nil:
			now[e.Key], named[a.Topology] = a, true
		}
	}
	if nowMark == mark {
		return now, mark
	}
	for id, a := range known {
		if _, there := now[id]; !there && !named[a.Topology] {
			now[id] = a
		}
	}
	if len(now) == 0 || len(now) == len(known) { // nothing came under the new mark yet
		return now, mark
	}
	return now, nowMark
}

func (m *machine) beat(ctx context.Context, beat uint64, status []cluster.ProcessStatus) {
	m.mu.Lock()
	s := cluster.Supervisor{ID: m.id, Host: m.name, Machine: m.name, Ports: m.ports, Beat: beat, OS: "linux/amd64", Version: "1.2.3", Processes: status}
	m.mu.Unlock()
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	if b, err := m.store.Bucket(ctx, cluster.BucketSupervisors, true); err == nil {
		_, _ = b.Put(ctx, m.id, text)
	}
}

// sync starts and ends processes.
func (m *machine) sync(known map[string]cluster.Assignment) (status []cluster.ProcessStatus, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hung {
		return m.told, false
	}
	wanted := map[string]func(ctx context.Context){}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		a := known[id]
		if a.Stop {
			continue
		}
		for _, place := range a.Workers {
			if place.Supervisor != m.id {
				continue
			}
			key := workerKey(id, a.Version.Epoch, place.ID())
			wanted["worker "+key] = func(ctx context.Context) { m.w.runWorker(ctx, key) }
			if m.processes["worker "+key] == nil {
				m.numbers[key] = a.Number
			}
			status = append(status, cluster.ProcessStatus{ID: id, Role: cluster.RoleWorker, Port: place.Port, Epoch: a.Version.Epoch, Number: m.numbers[key], Running: true})
		}
		if a.Master == m.id {
			key := fmt.Sprintf("%s/%d", id, a.Version.Epoch)
			wanted["master "+key] = func(ctx context.Context) { m.w.runMaster(ctx, m.store, a) }
			status = append(status, cluster.ProcessStatus{ID: id, Role: cluster.RoleMaster, Epoch: a.Version.Epoch, Running: true})
		}
	}
	for key, end := range m.processes {
		if wanted[key] == nil {
			m.w.ended(known, key)
			end()
			delete(m.processes, key)
			changed = true
		}
	}
	for key, run := range wanted {
		if m.processes[key] == nil {
			ctx, end := context.WithCancel(m.w.ctx)
			m.processes[key] = end
			m.w.mu.Lock()
			m.w.started = append(m.w.started, key+" on "+m.id)
			m.w.mu.Unlock()
			m.w.running.Go(func() { run(ctx) })
			changed = true
		}
	}
	m.told = status
	return status, changed
}

// ended is called before a process ends.
func (w *world) ended(known map[string]cluster.Assignment, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, a := range known {
		if v := a.Version; key == fmt.Sprintf("master %s/%d", id, v.Epoch-1) && v.Epoch > 1 && w.late[a.ID] {
			h := w.heads[a.Topology]
			h.commit(h.generation)
			delete(w.late, a.ID)
		}
	}
}

func workerKey(id string, epoch uint64, worker string) string {
	return fmt.Sprintf("%s/%d/%s", id, epoch, worker)
}

func (w *world) runWorker(ctx context.Context, key string) {
	w.set(w.workers, key, true)
	<-ctx.Done()
	w.set(w.workers, key, false)
}

func (w *world) set(m map[string]bool, key string, value bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m[key] = value
}

// runMaster is a topology master: it raises the generation, waits for its workers, and
// commits a batch every two seconds while spouts may emit.
func (w *world) runMaster(ctx context.Context, store *memcluster.Store, first cluster.Assignment) {
	id, epoch := first.ID, first.Version.Epoch
	w.mu.Lock()
	launch := w.launch
	w.mu.Unlock()
	select {
	case <-time.After(launch):
	case <-ctx.Done():
		return
	}
	s := cluster.RunStatus{Epoch: epoch, Incarnation: uint64(time.Now().UnixNano()), Phase: cluster.PhaseStarting}
	w.mu.Lock()
	h := w.heads[first.Topology]
	if h == nil {
		h = &head{}
		w.heads[first.Topology] = h
	}
	generation := 0
	if want, guarded := first.Version.Start.Unmoved["r"]; guarded && want != h.last {
		s.Phase, s.HeadMoved, s.Error = cluster.PhaseFailed, true, "the head has moved"
	} else if why := w.broken[first.Version.Binary.SHA256]; why != "" {
		s.Phase, s.Error = cluster.PhaseFailed, why
	} else {
		h.generation++
		generation = h.generation
	}
	last := h.last
	w.mu.Unlock()
	for ctx.Err() == nil {
		intent, a, err := w.told(ctx, store, id)
		if err == nil && s.Phase != cluster.PhaseFailed && s.Phase != cluster.PhaseStopped {
			s.Workers = w.connected(a, epoch)
			s.Unlinked = w.unlinked(a, s.Workers)
			last = w.step(first, h, generation, last, &s, intent, a)
		}
		s.Beat++
		s.Regions = []cluster.RegionState{{Name: "r", Last: last, Running: s.Phase == cluster.PhaseRunning, Idle: w.is(w.idle, first.Version.Binary.SHA256)}}
		if text, err := json.Marshal(s); err == nil {
			if b, err := store.Bucket(ctx, cluster.TopologyBucket(id), false); err == nil {
				_, _ = b.Put(ctx, cluster.KeyStatus, text)
			}
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

func (w *world) is(m map[string]bool, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return m[key]
}

func (w *world) step(first cluster.Assignment, h *head, generation int, last string, s *cluster.RunStatus, intent cluster.Intent, a cluster.Assignment) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	commit := func() {
		if h.generation == generation {
			h.commit(generation)
			last = h.last
		}
	}
	sha := first.Version.Binary.SHA256
	switch {
	case h.generation != generation:
		s.Phase, s.Error = cluster.PhaseFailed, "a later generation has taken over"
	case w.broken[sha] != "":
		s.Phase, s.Error = cluster.PhaseFailed, w.broken[sha]
	case intent.Epoch != first.Version.Epoch:
	case intent.Stop:
		commit()
		s.Phase = cluster.PhaseStopped
	case len(s.Unlinked) > 0:
		s.Phase = cluster.PhaseStarting
	case len(s.Workers) == len(a.Workers) && len(a.Workers) > 0 && !w.stuck[sha]:
		s.Phase = cluster.PhaseRunning
		if s.Active = intent.Active; intent.Active && !w.mute[sha] && !w.idle[sha] {
			commit()
		}
	}
	return last
}

// connected returns the workers of an assignment that run.
func (w *world) connected(a cluster.Assignment, epoch uint64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for _, place := range a.Workers {
		if w.workers[workerKey(a.ID, epoch, place.ID())] {
			ids = append(ids, place.ID())
		}
	}
	return ids
}

// cut cuts machines off from each other, or heals that.
func (w *world) cut(a, b *machine, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[[2]string{a.id, b.id}], w.cuts[[2]string{b.id, a.id}] = cut, cut
}

// unlinked returns the pairs of connected workers whose machines are cut off from each other.
func (w *world) unlinked(a cluster.Assignment, connected []string) (pairs [][2]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, x := range a.Workers {
		for _, y := range a.Workers[i+1:] {
			if w.cuts[[2]string{x.Supervisor, y.Supervisor}] && slices.Contains(connected, x.ID()) && slices.Contains(connected, y.ID()) {
				pairs = append(pairs, [2]string{min(x.ID(), y.ID()), max(x.ID(), y.ID())})
			}
		}
	}
	return pairs
}

// told returns what nimbus has told the topology master.
func (w *world) told(ctx context.Context, store *memcluster.Store, id string) (intent cluster.Intent, a cluster.Assignment, err error) {
	b, err := store.Bucket(ctx, cluster.TopologyBucket(id), false)
	if err != nil {
		return intent, a, err
	}
	for key, into := range map[string]any{cluster.KeyIntent: &intent, cluster.KeyAssignment: &a} {
		e, err := b.Get(ctx, key)
		if err != nil {
			return intent, a, err
		}
		if err := json.Unmarshal(e.Value, into); err != nil {
			return intent, a, err
		}
	}
	return intent, a, nil
}
