package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// kit is what a process needs.
type kit struct {
	dir     string // working folder
	program string
	secrets cluster.Secrets
}

// folder returns the working folder of a place.
func (s *Supervisor) folder(p slots.Place) string {
	return filepath.Join(s.dir, topologiesDir, p.ID, p.Name())
}

// prepare fetches what a process needs.
func (s *Supervisor) prepare(ctx context.Context, p slots.Place, a cluster.Assignment) (kit, error) {
	k := kit{dir: s.folder(p)}
	if err := s.makeFolder(k.dir); err != nil {
		return k, err
	}
	var err error
	if k.program, err = s.cache.program(ctx, p, a.Version.Binary); err != nil {
		return k, err
	}
	held := []string{k.program}
	for _, b := range a.Version.Blobs {
		path, err := s.cache.blob(ctx, p, b)
		if err != nil {
			return k, err
		}
		if _, _, err := link(k.dir, b, path); err != nil {
			return k, err
		}
		held = append(held, path)
	}
	if k.secrets, err = s.secrets(ctx, a); err != nil {
		return k, err
	}
	if p.Role == cluster.RoleMaster {
		s.lookForMaster(ctx, p.ID)
	}
	s.cache.release(p, held...) // what it held before, and needs no more
	return k, nil
}

// makeFolder makes a working folder. It is not made while its parent is removed.
func (s *Supervisor) makeFolder(dir string) error {
	s.folders.Lock()
	defer s.folders.Unlock()
	return os.MkdirAll(dir, 0o700)
}

// lookForMaster has the table know the newest topology master, so that the incarnation of
// the next one is above its. Without an answer the one that was seen last counts.
func (s *Supervisor) lookForMaster(ctx context.Context, id string) {
	b, err := s.cfg.Store.Bucket(ctx, cluster.TopologyBucket(id), false)
	if err != nil {
		return
	}
	if e, err := b.Get(ctx, cluster.KeyMaster); err == nil {
		s.masterSeen(id, e)
	}
}

// secrets returns the secrets of a topology; without an answer those that were kept on
// disk, if they are of the same epoch.
func (s *Supervisor) secrets(ctx context.Context, a cluster.Assignment) (cluster.Secrets, error) {
	var secrets cluster.Secrets
	path := filepath.Join(s.dir, topologiesDir, a.ID, "secrets.json")
	b, err := s.cfg.Store.Bucket(ctx, cluster.BucketSecrets, false)
	var e cluster.Entry
	if err == nil {
		e, err = b.Get(ctx, a.ID)
	}
	if err == nil {
		if err := json.Unmarshal(e.Value, &secrets); err != nil {
			return secrets, fmt.Errorf("the secrets of topology %s cannot be read", a.ID) // and are not shown
		}
		if secrets.Epoch == a.Version.Epoch {
			return secrets, writeSecret(path, string(e.Value))
		}
		err = fmt.Errorf("they are of epoch %d, not %d", secrets.Epoch, a.Version.Epoch)
	}
	text, readErr := os.ReadFile(path)
	if readErr == nil && json.Unmarshal(text, &secrets) == nil && secrets.Epoch == a.Version.Epoch {
		return secrets, nil
	}
	return secrets, fmt.Errorf("fetch the secrets of topology %s: %w", a.ID, err)
}

// writeSecret replaces a file that nobody else may read.
func writeSecret(path, text string) error {
	tmp, err := writeBeside(path, strings.NewReader(text), 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(filepath.Dir(path))
}

// start starts a process.
func (s *Supervisor) start(k kit, a slots.Start) (*process, error) {
	f := filesOf(k.dir, a.Incarnation)
	p := &process{place: a.Place, incarnation: a.Incarnation, beat: f.beat, exit: f.exit}
	if err := s.layOut(k, f, a); err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Place, err)
	}
	log, err := s.logs.open(a.Place)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Place, err)
	}
	defer log.Close()
	cmd := exec.Command(k.program)
	cmd.Args = []string{"isobar-" + a.Place.String()} // for ps; it says nothing to the program
	cmd.Dir, cmd.Stdout, cmd.Stderr = k.dir, log, log
	cmd.Env = s.environment(k, f, a.Assignment.Version.Config)
	if err := p.begin(cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// layOut writes the files that a process begins with, and removes those of the former one.
func (s *Supervisor) layOut(k kit, f files, a slots.Start) error {
	if err := os.RemoveAll(filepath.Dir(f.process)); err != nil {
		return err
	}
	if err := os.MkdirAll(f.tmp, 0o700); err != nil {
		return err
	}
	spec := s.spec(k, f, a)
	if k.secrets.Creds != "" {
		spec.Store.Creds = f.creds
		if err := os.WriteFile(f.creds, []byte(k.secrets.Creds), 0o600); err != nil {
			return err
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(f.process, text, 0o600)
}

// spec returns what a process is told.
func (s *Supervisor) spec(k kit, f files, a slots.Start) cluster.Process {
	v := a.Assignment.Version
	p := cluster.Process{
		Role: a.Place.Role, Topology: a.Assignment.Topology, ID: a.Place.ID,
		Epoch: v.Epoch, Incarnation: a.Incarnation, Supervisor: s.cfg.ID,
		Args: v.Args, Config: v.Config, Start: v.Start, Tasks: tasksOf(v),
		Listen: net.JoinHostPort(s.cfg.Bind, strconv.Itoa(a.Place.Port)), Host: s.cfg.Host,
		Master: a.Master,
		Dir:    f.dir, Beat: f.beat, Exit: f.exit, BeatEvery: s.cfg.BeatEvery, Lease: s.cfg.Lease,
		Store: s.cfg.Access, Links: s.cfg.Links, Secret: k.secrets.Secret,
	}
	if a.Place.Role == cluster.RoleMaster {
		p.Ports = s.cfg.MasterPorts
	}
	if a.Place.Role == cluster.RoleWorker {
		p.Worker = cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: s.cfg.ID, Port: a.Place.Port}}.ID()
	}
	return p
}

// tasksOf returns the numbers of tasks of a version, by component.
func tasksOf(v cluster.Version) map[string]int {
	tasks := map[string]int{}
	for _, c := range v.Components {
		tasks[c.ID] = c.Tasks
	}
	return tasks
}

// environment returns all that a process's environment has.
func (s *Supervisor) environment(k kit, f files, config map[string]any) []string {
	env := []string{cluster.EnvProcess + "=" + f.process, "HOME=" + k.dir, "TMPDIR=" + f.tmp}
	if runtime.GOOS == "windows" {
		env = append(env, "SYSTEMROOT="+os.Getenv("SYSTEMROOT"), "TEMP="+f.tmp, "TMP="+f.tmp)
	}
	memory := s.cfg.WorkerMemoryMB
	if mb := number(config["topology.worker.max.heap.size.mb"]); mb > 0 {
		memory = mb
	}
	if memory > 0 {
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%dMiB", memory))
	}
	if s.cfg.WorkerCPU > 0 {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", max(1, s.cfg.WorkerCPU/100)))
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if slices.ContainsFunc(s.cfg.Environment, func(pattern string) bool {
			beginning, open := strings.CutSuffix(pattern, "*")
			return name == pattern || open && strings.HasPrefix(name, beginning)
		}) && !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			env = append(env, v)
		}
	}
	return env
}

// number returns a number of a configuration, as JSON has it, or 0.
func number(v any) int {
	switch v := v.(type) {
	case int:
		return v
	case float64:
		if v >= 1 && v <= math.MaxInt32 {
			return int(v)
		}
	}
	return 0
}

// clean removes what a place has on disk. It is renamed first, which is quick, so that
// the place can be used again at once.
func (s *Supervisor) clean(p slots.Place) {
	s.folders.Lock()
	defer s.folders.Unlock()
	s.cache.release(p)
	s.discard(s.folder(p))
	parent := filepath.Dir(s.folder(p))
	left := slices.ContainsFunc(list(parent), func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	})
	if !left {
		s.discard(parent)
	}
}

// discard moves something to the trash, which the housekeeping empties.
func (s *Supervisor) discard(path string) {
	to := filepath.Join(s.dir, trashDir, fmt.Sprintf("%d-%s", time.Now().UnixNano(), filepath.Base(path)))
	err := os.Rename(path, to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("a folder that is not needed any more cannot be removed", "path", path, "err", err)
	}
}
