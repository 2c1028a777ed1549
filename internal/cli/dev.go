package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/cluster/natscluster"
	"github.com/isobar-io/isobar/engine/cluster/natsserver"
	"github.com/isobar-io/isobar/engine/cluster/nimbus"
	"github.com/isobar-io/isobar/engine/cluster/supervisor"
	"github.com/isobar-io/isobar/engine/config"
)

// dev is a whole cluster in one process, for this machine alone. The processes of
// topologies are processes all the same.
type dev struct {
	daemonFlags
	data        string
	port, slots int
	firstPort   int
}

func newDev() *cobra.Command {
	var d dev
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this machine: NATS, nimbus and a supervisor.",
		Long: "Run a whole cluster on this machine, in the foreground: the coordination store, nimbus and a\n" +
			"supervisor. Nothing of it is reached from other machines. Interrupt it to stop all topologies after a\n" +
			"last checkpoint; the next start brings them back where they were.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.check(); err != nil {
				return usageError{err}
			}
			return d.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	d.add(cmd)
	cmd.Flags().StringVar(&d.data, "data", filepath.Join(".isobar", "dev"), "keep everything in `DIR`")
	cmd.Flags().IntVar(&d.port, "port", 4222, "run the coordination store on `PORT`; 0 is any free one")
	cmd.Flags().IntVar(&d.slots, "slots", 4, "run up to `N` workers")
	cmd.Flags().IntVar(&d.firstPort, "first-port", 6700, "let workers listen on ports from `PORT` on")
	return cmd
}

// check refuses numbers that cannot be.
func (d *dev) check() error {
	const last = 1<<16 - 1
	switch {
	case d.port < -1 || d.port > last:
		return fmt.Errorf("--port %d: it must be a port, up to %d, or 0 for any free one", d.port, last)
	case d.slots < 1:
		return fmt.Errorf("--slots %d: at least 1 is needed, without one nothing runs", d.slots)
	case d.firstPort < 1 || d.firstPort+d.slots-1 > last:
		return fmt.Errorf("--first-port %d, --slots %d: the ports must be from 1 to %d", d.firstPort, d.slots, last)
	}
	return nil
}

func (d *dev) run(ctx context.Context, out, errOut io.Writer) (err error) {
	data, err := filepath.Abs(d.data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	log := d.logger(errOut)
	if !d.verbose {
		log = slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	nats, err := natsserver.Start(natsserver.Options{Port: d.natsPort(), StoreDir: filepath.Join(data, "nats"), Log: log.With("daemon", "nats")})
	if err != nil {
		return fmt.Errorf("%w; is another 'isobar dev' running? --port and --data make room for a second one", err)
	}
	defer func() { err = errors.Join(err, nats.Shutdown()) }()
	conf, err := d.conf(nats.ClientURL(), data)
	if err != nil {
		return err
	}
	store, err := natscluster.Open(accessOf(conf), natscluster.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := forgetLeader(ctx, store); err != nil {
		return err
	}
	s, err := d.supervisor(conf, data, store, log)
	if err != nil {
		return err
	}
	n, err := nimbus.New(nimbus.Options{ID: "dev", Store: store, Conf: conf, Version: engine.Version, Log: log.With("daemon", "nimbus")})
	if err != nil {
		return err
	}
	leading, stop := context.WithCancel(context.Background())
	var led sync.WaitGroup
	led.Go(func() { n.Run(leading) })
	defer led.Wait()
	defer stop() // after the supervisor, whose topologies end with a last checkpoint
	d.say(out, nats.ClientURL())
	err = s.Run(ctx)
	if ctx.Err() != nil {
		fmt.Fprintln(out, "Stopped; topologies go on where they were at the next start.")
	}
	return err
}

// say tells what to do next.
func (d *dev) say(out io.Writer, url string) {
	where := ""
	if url != "nats://127.0.0.1:4222" {
		where = " --nats " + url
	}
	fmt.Fprintf(out, `A cluster runs on this machine, with %d slots for workers and its data in %s.
In another terminal, in a folder with a topology program:

  go build -o wordcount ./examples/wordcount
  ./wordcount submit words%[3]s
  isobar list%[3]s
  isobar status words%[3]s
  isobar kill words%[3]s

Interrupt this to stop it.
`, d.slots, d.data, where)
}

// natsPort: the server takes 0 for any free port, and -1 is what people write as well.
func (d *dev) natsPort() int { return max(d.port, 0) }

func (d *dev) conf(url, data string) (config.Values, error) {
	given, err := d.read()
	if err != nil {
		return given, err
	}
	own, err := daemonconf.Table.Of("isobar dev", map[string]any{
		"nats.urls":               url,
		"storm.local.hostname":    "127.0.0.1",
		"supervisor.bind":         "127.0.0.1",
		"checkpoint.store":        "file://" + filepath.ToSlash(filepath.Join(data, "checkpoints")),
		"checkpoint.store.shared": true,
	})
	if err != nil {
		return own, err
	}
	return config.Merge(daemonconf.Defaults(), own, given), nil
}

func (d *dev) supervisor(conf config.Values, data string, store cluster.Store, log *slog.Logger) (*supervisor.Supervisor, error) {
	c, err := supervisorConfig(conf, 0, false)
	if err != nil {
		return nil, err
	}
	c.ID, c.Dir, c.Store, c.Logger = "dev", filepath.Join(data, "supervisor"), store, log.With("daemon", "supervisor")
	c.Ports = supervisor.SlotPorts(d.firstPort, d.slots)
	c.StopProcesses = true
	return supervisor.New(c)
}

// forgetLeader ends the lease of a nimbus that died with an earlier process: this one has
// the data folder to itself, so nobody else can lead.
func forgetLeader(ctx context.Context, store cluster.Store) error {
	b, err := store.Bucket(ctx, cluster.BucketNimbus, true)
	if err != nil {
		return err
	}
	if err := b.Delete(ctx, cluster.KeyLeader, 0); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return err
	}
	return nil
}
