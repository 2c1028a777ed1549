package nimbus

import (
	"cmp"
	"maps"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Who is judged dead: a table of how long each has been silent, in seconds.
func TestWhoIsLost(t *testing.T) {
	const ok = 3
	for _, c := range []struct {
		name       string
		noRun      bool
		master     int // silence of the topology master
		reporting  int // since its process was first heard of
		ofMaster   int // silence of its supervisor
		ofWorker   int // silence of the worker's
		connected  bool
		sick       string
		portGone   bool
		apart      int // how long the master has missed the worker
		limit      int // of supervisors; 0: 60
		runs       bool
		other      bool
		masterLost bool
		workerLost bool
		cut        bool // its machine is to be left
	}{
		{name: "all well", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, connected: true},
		{name: "supervisor dead, worker connected", master: 2, reporting: 500, ofMaster: ok, ofWorker: 900, connected: true},
		{name: "supervisor dead, worker gone", master: 2, reporting: 500, ofMaster: ok, ofWorker: 61, workerLost: true},
		{name: "supervisor silent for less", master: 2, reporting: 500, ofMaster: ok, ofWorker: 60},
		{name: "supervisor alive, worker gone", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, apart: 120},
		{name: "supervisor alive, worker cut off from its master", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, runs: true, apart: 31, workerLost: true, cut: true},
		{name: "cut off for less", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, runs: true, apart: 30},
		{name: "it is another topology's that runs", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, runs: true, other: true, apart: 31},
		{name: "supervisor alive, worker missed for long", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, apart: 121, workerLost: true},
		{name: "nobody says who is connected", master: 31, reporting: 500, ofMaster: 29, ofWorker: 900},
		{name: "a new master that workers have not found yet", master: 2, reporting: 30, ofMaster: ok, ofWorker: 900},
		{name: "workers leave a lost machine", limit: 15, master: 2, reporting: 500, ofMaster: ok, ofWorker: 16, workerLost: true},
		{name: "a machine not lost yet", limit: 15, master: 2, reporting: 500, ofMaster: ok, ofWorker: 15},
		{name: "the master leaves a lost machine", limit: 15, master: 31, reporting: 500, ofMaster: 31, ofWorker: 31, masterLost: true},
		{name: "the other workers may still look for it", limit: 15, master: 2, reporting: 15, ofMaster: ok, ofWorker: 900},
		{name: "who has not found it by now is lost", limit: 15, master: 2, reporting: 16, ofMaster: ok, ofWorker: 900, workerLost: true},
		{name: "the machine is not healthy, worker gone", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, sick: "disk", workerLost: true},
		{name: "the machine is not healthy, worker connected", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, sick: "disk", connected: true},
		{name: "its port is not offered any more", master: 2, reporting: 500, ofMaster: ok, ofWorker: ok, portGone: true, workerLost: true},
		{name: "master silent, its supervisor well", master: 31, reporting: 500, ofMaster: ok, masterLost: true},
		{name: "master silent for less", master: 30, reporting: 500, ofMaster: ok},
		{name: "master and its supervisor silent, which may be the way to both", master: 40, reporting: 500, ofMaster: 40},
		{name: "master and its supervisor dead", master: 62, reporting: 500, ofMaster: 61, masterLost: true},
		{name: "master not heard of yet", noRun: true, master: 120, ofMaster: ok},
		{name: "master not heard of in time", noRun: true, master: 121, ofMaster: ok, masterLost: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limits{
				supervisor: time.Duration(cmp.Or(c.limit, 60)) * time.Second,
				task:       30 * time.Second,
				launch:     120 * time.Second,
			}
			place := cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: "w", Port: 6700}}
			s := standing{
				assignment: cluster.Assignment{ID: "words-1-1", Master: "m", Workers: []cluster.WorkerPlace{place}},
				silence:    time.Duration(c.master) * time.Second,
				reporting:  time.Duration(c.reporting) * time.Second,
				supervisor: func(id string) (cluster.Supervisor, time.Duration) {
					if id == "m" {
						return cluster.Supervisor{ID: id}, time.Duration(c.ofMaster) * time.Second
					}
					sup := cluster.Supervisor{ID: id, Ports: []int{6700, 6701}, Unhealthy: c.sick}
					if c.runs {
						p := cluster.ProcessStatus{ID: "words-1-1", Role: cluster.RoleWorker, Port: 6700, Running: true}
						if c.other {
							p.ID = "words-2-2"
						}
						sup.Processes = []cluster.ProcessStatus{p}
					}
					if c.portGone {
						sup.Ports = []int{6701}
					}
					return sup, time.Duration(c.ofWorker) * time.Second
				},
			}
			s.apart = map[string]time.Duration{place.ID(): time.Duration(c.apart) * time.Second}
			if s.launching = c.noRun; !c.noRun {
				s.run = &cluster.RunStatus{}
				if c.connected {
					s.run.Workers = []string{place.ID()}
				}
			}
			want := map[cluster.Slot]bool{}
			if c.workerLost {
				want[place.Slot] = c.cut
			}
			if got := s.workersLost(l); !maps.Equal(got, want) {
				t.Errorf("workers lost: %v, want %v", got, want)
			}
			if got := s.masterLost(l); got != c.masterLost {
				t.Errorf("master lost: %v", got)
			}
		})
	}
}

func TestSilenceBeginsAnew(t *testing.T) {
	var s signs
	start := time.Now()
	s.reset(start)
	at := func(secs int) time.Time { return start.Add(time.Duration(secs) * time.Second) }
	s.sign("a", at(10))
	if got := s.silence("a", at(15)); got != 5*time.Second {
		t.Errorf("silence %v", got)
	}
	if got := s.silence("never", at(15)); got != 15*time.Second {
		t.Errorf("silence of one never heard of %v", got)
	}
	s.reset(at(100))
	if got := s.silence("a", at(101)); got != time.Second {
		t.Errorf("silence after a reset %v", got)
	}
}
