// Package process is what a topology program does as a process of a cluster: it is the
// topology master, or one of the workers. Neither needs the coordination store to go on:
// it tells them what is wanted, and others how they are.
package process

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
)

// Config is what a process of a topology is made of.
type Config struct {
	cluster.Process
	Build   *engine.Topology
	Options []engine.Option // storage and configuration among them
	Store   cluster.Store
	TLS     *tls.Config // for links, at both ends; nil: none
	Logger  *slog.Logger
	Levels  *Levels
	// Inspect is told the run, for metrics; Metrics is where those are served, or "".
	Inspect func(*engine.Inspector)
	Metrics string
}

// ErrInterrupted is returned by a process that was told to end by its machine, not by
// the cluster: it is to be started again.
var ErrInterrupted = errors.New("interrupted")

// ErrFenced is returned by a topology master that another one has taken over from.
var ErrFenced = errors.New("another topology master leads")

// Read reads the file that the supervisor has written for a process.
func Read(path string) (cluster.Process, error) {
	var p cluster.Process
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return p, fmt.Errorf("read what this process is to be: %w", err)
	}
	if p.Role != cluster.RoleMaster && p.Role != cluster.RoleWorker {
		return p, fmt.Errorf("read what this process is to be from %s: role %q is neither master nor worker", path, p.Role)
	}
	return p, nil
}

// begunNote is a file in the folder of a topology master: it has begun in its epoch.
const begunNote = "begun"

// Begun reports whether a topology master of that epoch has begun on this machine before.
func Begun(p cluster.Process) bool {
	note, err := os.ReadFile(filepath.Join(p.Dir, begunNote))
	return err == nil && string(note) == noteOf(p)
}

func noteOf(p cluster.Process) string { return fmt.Sprintf("%s/%d", p.ID, p.Epoch) }

// begin notes that it has.
func begin(p cluster.Process) error {
	if p.Dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(p.Dir, begunNote), []byte(noteOf(p)), 0o600)
}

// Beat writes something new to the process's beat file again and again until ctx ends.
func Beat(ctx context.Context, p cluster.Process, log *slog.Logger) {
	if p.Beat == "" || p.BeatEvery <= 0 {
		return
	}
	f, err := os.OpenFile(p.Beat, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		log.Error("cannot show that this process lives", "err", err)
		return
	}
	defer f.Close()
	tick := time.NewTicker(p.BeatEvery)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		// In place, and always as long: a full disk must not make it look dead.
		if _, err := fmt.Fprintf(io.NewOffsetWriter(f, 0), "%020d\n", n); err != nil {
			log.Warn("cannot show that this process lives", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// NoteExit writes the code with which a process is about to exit where a supervisor finds
// it that has not started it, and is not told.
func NoteExit(p cluster.Process, code int) error {
	if p.Exit == "" {
		return nil
	}
	return os.WriteFile(p.Exit, []byte(strconv.Itoa(code)), 0o600)
}

// retryEvery is the pause before the coordination store is asked again.
const retryEvery = time.Second

// persist calls fn until it succeeds or ctx ends.
func persist(ctx context.Context, log *slog.Logger, what string, fn func(context.Context) error) error {
	told := false
	for {
		err := fn(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !told {
			told = true
			log.Warn("cannot "+what+" yet, will try again", "err", err)
		}
		pause(ctx, retryEvery)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// put writes a record to the topology's bucket.
func put(ctx context.Context, s cluster.Store, id, key string, v any) error {
	b, err := s.Bucket(ctx, cluster.TopologyBucket(id), false)
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = b.Put(ctx, key, data)
	return err
}

// follow calls told with every change of the topology's bucket, whatever becomes of the
// store meanwhile, until ctx ends.
func follow(ctx context.Context, s cluster.Store, id string, log *slog.Logger, told func(cluster.Entry)) {
	for ctx.Err() == nil {
		var changes <-chan cluster.Entry
		err := persist(ctx, log, "watch the topology's bucket", func(ctx context.Context) error {
			b, err := s.Bucket(ctx, cluster.TopologyBucket(id), false)
			if err == nil {
				changes, err = b.Watch(ctx, "")
			}
			return err
		})
		if err != nil {
			return
		}
		for e := range changes {
			told(e)
		}
	}
}

// dialer returns what dials topology masters.
func dialer(c *tls.Config) func(string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 5 * time.Second}
	return func(address string) (net.Conn, error) {
		if c == nil {
			return d.Dial("tcp", address)
		}
		return tls.DialWithDialer(d, "tcp", address, c)
	}
}

// listen listens for links.
func listen(address string, c *tls.Config) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for links: %w", err)
	}
	if c != nil {
		l = tls.NewListener(l, c)
	}
	return l, nil
}

// listenFirst listens on the first free port of an address's host; without ports, on the
// address itself.
func listenFirst(address string, ports []int, c *tls.Config) (net.Listener, error) {
	if len(ports) == 0 {
		return listen(address, c)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, port := range ports {
		l, err := listen(net.JoinHostPort(host, strconv.Itoa(port)), c)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// reached returns how other machines reach a listener.
func reached(host string, l net.Listener) string {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	return net.JoinHostPort(host, port)
}

// background runs goroutines that end with a context.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

func newBackground(ctx context.Context) *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return b
}

func (b *background) run(fn func(context.Context)) { b.all.Go(func() { fn(b.ctx) }) }

func (b *background) end() {
	b.cancel()
	b.all.Wait()
}
