package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/cluster/natscluster"
	"github.com/isobar-io/isobar/engine/cluster/nimbus"
	"github.com/isobar-io/isobar/engine/cluster/supervisor"
	"github.com/isobar-io/isobar/engine/config"
)

// daemonFlags are those that every daemon has.
type daemonFlags struct {
	file        string
	assignments []string
	verbose     bool
}

func (f *daemonFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "config", os.Getenv("ISOBAR_CONFIG"), "read the configuration from a YAML `FILE`")
	cmd.Flags().StringArrayVarP(&f.assignments, "conf", "c", nil, "set configuration, as in -c nimbus.lease.secs=20 (`KEY=VALUE`, repeatable)")
	cmd.Flags().BoolVar(&f.verbose, "verbose", false, "log more")
}

func (f *daemonFlags) read() (config.Values, error) {
	return daemonconf.Read(f.file, os.Environ(), f.assignments)
}

func (f *daemonFlags) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// accessOf returns how a daemon reaches the coordination store.
func accessOf(c config.Values) cluster.StoreAccess {
	return cluster.StoreAccess{
		URLs:  c.List("nats.urls"),
		Creds: c.String("nats.creds.file"),
		CA:    c.String("nats.ca.file"),
		Cert:  c.String("nats.cert.file"),
		Key:   c.String("nats.key.file"),
	}
}

func newNimbus() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "nimbus",
		Short: "Run a nimbus, which takes submissions and says what runs where.",
		Long:  "Run a nimbus: it takes submissions and says what runs where. Several may run; one leads.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := f.read()
			if err != nil {
				return err
			}
			log := f.logger(cmd.ErrOrStderr()).With("daemon", "nimbus")
			store, err := natscluster.Open(accessOf(conf), natscluster.Options{Replicas: conf.Int("nats.replicas"), Log: log})
			if err != nil {
				return err
			}
			defer store.Close()
			minter, err := minterOf(conf)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			n, err := nimbus.New(nimbus.Options{
				ID:    fmt.Sprintf("%s-%d", cmp.Or(conf.String("storm.local.hostname"), host), os.Getpid()),
				Store: store, Conf: conf, Version: engine.Version, Minter: minter, Log: log,
			})
			if err != nil {
				return err
			}
			log.Info("started", "nats", conf.List("nats.urls"))
			n.Run(cmd.Context())
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// minterOf returns what makes credentials for topologies, or nil.
func minterOf(c config.Values) (nimbus.Minter, error) {
	dir := c.String("nats.keys.dir")
	if dir == "" {
		return nil, nil
	}
	keys, err := natscluster.ReadKeys(dir)
	if err != nil {
		return nil, err
	}
	return natscluster.Minter{Keys: keys}, nil
}

func newSupervisor() *cobra.Command {
	var f daemonFlags
	var slots int
	var insecure bool
	cmd := &cobra.Command{
		Use:   "supervisor",
		Short: "Run the supervisor of this machine, which starts and watches processes.",
		Long: "Run the supervisor of this machine: it fetches topology programs, starts their processes and\n" +
			"watches them. They go on when it ends, and the next one takes them over.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := f.read()
			if err != nil {
				return err
			}
			log := f.logger(cmd.ErrOrStderr()).With("daemon", "supervisor")
			access := accessOf(conf)
			store, err := natscluster.Open(access, natscluster.Options{Log: log})
			if err != nil {
				return err
			}
			defer store.Close()
			c, err := supervisorConfig(conf, slots, insecure)
			if err != nil {
				return err
			}
			c.Store, c.Logger = store, log
			s, err := supervisor.New(c)
			if err != nil {
				return err
			}
			log.Info("started", "id", s.ID(), "host", c.Host, "slots", len(c.Ports), "nats", access.URLs)
			return s.Run(cmd.Context())
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&slots, "slots", 0, "run up to `N` workers, on ports from the first of supervisor.slots.ports on")
	cmd.Flags().BoolVar(&insecure, "insecure", false, "let processes talk to other machines without TLS")
	return cmd
}

// supervisorConfig returns what a configuration says of a supervisor.
func supervisorConfig(c config.Values, slots int, insecure bool) (supervisor.Config, error) {
	ports, err := daemonconf.Ports(c.String("supervisor.slots.ports"))
	if err != nil {
		return supervisor.Config{}, err
	}
	if slots > 0 && len(ports) > 0 {
		ports = supervisor.SlotPorts(ports[0], slots)
	}
	masterPorts, err := daemonconf.Ports(c.String("supervisor.master.ports"))
	if err != nil {
		return supervisor.Config{}, err
	}
	labels, err := daemonconf.Labels(c.String("supervisor.labels"))
	if err != nil {
		return supervisor.Config{}, err
	}
	host := c.String("storm.local.hostname")
	bind := c.String("supervisor.bind")
	if bind == "" && loopback(host) {
		bind = host
	}
	dir, err := localDir(c, "", "supervisor")
	if err != nil {
		return supervisor.Config{}, err
	}
	s := supervisor.Config{
		Dir: dir, ID: c.String("supervisor.id"), Host: host, Bind: bind, Ports: ports, MasterPorts: masterPorts, Labels: labels, Version: engine.Version,
		MemoryMB: c.Int("supervisor.memory.capacity.mb"), CPU: c.Int("supervisor.cpu.capacity"),
		Access:         accessOf(c),
		Links:          cluster.LinkTLS{CA: c.String("supervisor.links.ca.file"), Cert: c.String("supervisor.links.cert.file"), Key: c.String("supervisor.links.key.file")},
		Environment:    c.List("supervisor.environment"),
		WorkerMemoryMB: c.Int("supervisor.worker.memory.mb"), WorkerCPU: 100 * c.Int("supervisor.worker.cpu.cores"),
		HeartbeatEvery: c.Duration("supervisor.heartbeat.frequency.secs"),
		ResyncEvery:    c.Duration("supervisor.monitor.frequency.secs"),
		WorkerTimeout:  c.Duration("supervisor.worker.timeout.secs"),
		StartTimeout:   c.Duration("supervisor.worker.start.timeout.secs"),
		Lease:          c.Duration("supervisor.worker.lease.secs"),
		RestartMin:     restartMin,
		HealthDir:      c.String("storm.health.check.dir"), HealthTimeout: c.Duration("storm.health.check.timeout.ms"),
		CacheMB:   c.Int("supervisor.localizer.cache.target.size.mb"),
		BlobEvery: c.Duration("supervisor.localizer.update.blob.interval.secs"),
	}
	s.Access.Creds = "" // processes have their own
	if s.Links.Cert == "" && !loopback(bind) && !insecure {
		return s, errors.New("processes of topologies would talk to other machines without TLS: set supervisor.links.cert.file, supervisor.links.key.file and supervisor.links.ca.file, bind to this machine alone (supervisor.bind=127.0.0.1, storm.local.hostname=127.0.0.1), or say --insecure")
	}
	return s, nil
}

// restartMin is the pause before a process that has failed is started again for the first
// time.
const restartMin = 100 * time.Millisecond

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// stateDir returns the folder for what Isobar's daemons keep for a user.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "isobar"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for data: %w; set storm.local.dir", err)
	}
	return filepath.Join(home, ".local", "state", "isobar"), nil
}
