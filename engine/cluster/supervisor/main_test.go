//go:build unix

package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// envSupervisor makes the test binary a supervisor: it names the file of its orders.
const envSupervisor = "ISOBAR_TEST_SUPERVISOR"

// The test binary is also the program of the topologies, and the supervisor that is
// killed.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(cluster.EnvProcess) != "":
		os.Exit(victim())
	case os.Getenv(envSupervisor) != "":
		os.Exit(separate(os.Getenv(envSupervisor)))
	}
	os.Exit(m.Run())
}

// victim is a process of a topology. Its first argument says what it does:
//
//	run         lives until SIGTERM, or until there is a file finish in its folder
//	hang        as run, but its beat stops after the third
//	mute        as run, without any beat
//	deaf        as run, but takes no notice of SIGTERM
//	exit CODE   ends at once
//	loud        writes 10 MiB to stderr, then as run
func victim() int {
	text, err := os.ReadFile(os.Getenv(cluster.EnvProcess))
	var p cluster.Process
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Dir, "environment"), []byte(strings.Join(os.Environ(), "\n")), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cluster.ExitUsage
	}
	fmt.Println("process", p.ID, p.Role, p.Worker)
	switch p.Args[0] {
	case "exit":
		code, _ := strconv.Atoi(p.Args[1])
		return end(p, code)
	case "loud":
		for range 10 << 10 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 1023))
		}
	}
	return live(p)
}

// live writes beats until the victim is to end.
func live(p cluster.Process) int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	tick := time.NewTicker(p.BeatEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if p.Args[0] != "mute" && (p.Args[0] != "hang" || n < 3) {
			if err := os.WriteFile(p.Beat, []byte(strconv.Itoa(n)), 0o600); err != nil {
				return 1
			}
		}
		if _, err := os.Stat(filepath.Join(p.Dir, "finish")); err == nil {
			return end(p, cluster.ExitDone)
		}
		select {
		case <-tick.C:
		case <-term:
			if p.Args[0] != "deaf" {
				return end(p, cluster.ExitSignal)
			}
		}
	}
}

// end notes the exit code.
func end(p cluster.Process, code int) int {
	if err := os.WriteFile(p.Exit, []byte(strconv.Itoa(code)), 0o600); err != nil {
		return 1
	}
	return code
}

// orders are what a supervisor of its own process finds in its store.
type orders struct {
	Dir         string
	Assignments []cluster.Assignment
	Down        bool // the store does not answer
}

// separate is a supervisor in a process of its own, with a store in memory. It prints its
// heartbeats.
func separate(path string) int {
	text, err := os.ReadFile(path)
	var o orders
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err == nil {
		err = runSeparate(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runSeparate(o orders) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	for _, a := range o.Assignments {
		if err := w.assign(ctx, a); err != nil {
			return err
		}
	}
	cfg := testConfig(o.Dir)
	cfg.Store = w.server.Connect("supervisor")
	beats, err := w.supervisors.Watch(ctx, "")
	if err != nil {
		return err
	}
	go func() {
		for e := range beats {
			if e.Value != nil {
				fmt.Println(string(e.Value))
			}
		}
	}()
	s, err := New(cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// testConfig is quick where a test waits and patient where a machine may be slow.
func testConfig(dir string) Config {
	return Config{
		Dir: dir, ID: "s1", Host: "localhost", Bind: "127.0.0.1", Ports: SlotPorts(6700, 3), Machine: "m",
		HeartbeatEvery: 400 * time.Millisecond, ResyncEvery: 500 * time.Millisecond,
		WorkerTimeout: 20 * time.Second, StartTimeout: 40 * time.Second, BeatEvery: 10 * time.Millisecond,
		Grace: 20 * time.Second, CloseGrace: 20 * time.Second, DumpTime: 10 * time.Second,
		RestartMin: 20 * time.Millisecond, RestartMax: 200 * time.Millisecond,
		HouseEvery: 20 * time.Millisecond, BlobEvery: 20 * time.Millisecond, HealthEvery: 20 * time.Millisecond,
		HealthTimeout: 20 * time.Second,
	}
}

// assignment returns one that has the topology master and the workers of some ports on
// supervisor s1.
func assignment(id string, epoch, number uint64, args []string, ports ...int) cluster.Assignment {
	name, _ := cluster.NameOfID(id)
	a := cluster.Assignment{Topology: name, ID: id, Number: number, Version: cluster.Version{Epoch: epoch, Args: args}}
	if slices.Contains(ports, 0) {
		a.Master = "s1"
	}
	for _, p := range ports {
		if p != 0 {
			a.Workers = append(a.Workers, cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: "s1", Port: p}, Host: "localhost"})
		}
	}
	return a
}

func itoa(n int) string { return strconv.Itoa(n) }
