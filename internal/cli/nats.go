package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster/natscluster"
	"github.com/isobar-io/isobar/engine/cluster/natsserver"
	"github.com/isobar-io/isobar/engine/config"
)

func newNATS() *cobra.Command {
	var f daemonFlags
	var insecure bool
	cmd := &cobra.Command{
		Use:   "nats",
		Short: "Run the coordination store of a cluster, a NATS server.",
		Long: "Run the coordination store of a cluster: a NATS server with JetStream, alone or one of a group of\n" +
			"three. Any other NATS server from 2.12 on does as well.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := f.read()
			if err != nil {
				return err
			}
			log := f.logger(cmd.ErrOrStderr()).With("daemon", "nats")
			options, err := natsOptions(conf)
			if err != nil {
				return err
			}
			options.Insecure, options.Log = insecure, log
			s, err := natsserver.Start(options)
			if err != nil {
				return err
			}
			log.Info("started", "url", s.ClientURL(), "dir", options.StoreDir, "group", options.Group.Name)
			<-cmd.Context().Done()
			return s.Shutdown()
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&insecure, "insecure", false, "let other machines in without TLS and credentials")
	cmd.AddCommand(newNATSInit(), newNATSCreds())
	return cmd
}

// natsOptions returns what a configuration says of the server.
func natsOptions(c config.Values) (natsserver.Options, error) {
	dir, err := localDir(c, "nats.server.dir", "nats")
	if err != nil {
		return natsserver.Options{}, err
	}
	o := natsserver.Options{
		Host: c.String("nats.server.host"), Port: c.Int("nats.server.port"),
		StoreDir: dir, Name: c.String("nats.server.name"),
		TLS: natsserver.TLS{CA: c.String("nats.ca.file"), Cert: c.String("nats.cert.file"), Key: c.String("nats.key.file")},
	}
	if name := c.String("nats.group.name"); name != "" {
		machine, err := os.Hostname()
		if err != nil {
			return o, err
		}
		o.Name = cmp.Or(o.Name, machine)
		o.Group = natsserver.Group{
			Name: name, Host: cmp.Or(c.String("nats.group.host"), o.Host), Port: c.Int("nats.group.port"),
			Advertise: cmp.Or(c.String("storm.local.hostname"), machine), Routes: c.List("nats.group.routes"),
		}
	}
	if keys := c.String("nats.keys.dir"); keys != "" {
		k, err := natscluster.ReadKeys(keys)
		if err != nil {
			return o, err
		}
		o.Trust = &natsserver.Trust{Operator: k.Operator, Accounts: []string{k.System, k.Account}}
	}
	return o, nil
}

// localDir returns the folder that a key names, or one in storm.local.dir.
func localDir(c config.Values, key, name string) (string, error) {
	if key != "" && c.String(key) != "" {
		return c.String(key), nil
	}
	dir := c.String("storm.local.dir")
	if dir == "" {
		var err error
		if dir, err = stateDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, name), nil
}

func newNATSInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Make the keys of a cluster, in a new folder.",
		Long: "Make the keys of a cluster, in a new folder. Servers need the *.jwt files of it, nimbus the file\n" +
			"account.nk as well; the other *.nk files belong into a safe.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := natscluster.MakeKeys(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "The keys are in %s. Make credentials with: isobar nats creds ROLE NAME --keys %[1]s\n", args[0])
			return err
		},
	}
}

func newNATSCreds() *cobra.Command {
	var keys, out string
	var days int
	cmd := &cobra.Command{
		Use:   "creds ROLE NAME",
		Short: "Make credentials for a user (user, admin) or a daemon (nimbus, supervisor).",
		Long: "Make credentials: a file that proves to the coordination store who its owner is. ROLE is user or\n" +
			"admin for people, with their name; nimbus, with any name; or supervisor, with the supervisor's id\n" +
			"(supervisor.id).",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keys == "" {
				return errors.New("--keys is missing: the folder that 'isobar nats init' has made")
			}
			k, err := natscluster.ReadKeys(keys)
			if err != nil {
				return err
			}
			text, err := k.Mint(natscluster.Role(args[0]), args[1], time.Duration(days)*24*time.Hour)
			if err != nil {
				return err
			}
			if out == "" {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				return err
			}
			return os.WriteFile(out, []byte(text), 0o600)
		},
	}
	cmd.Flags().StringVar(&keys, "keys", "", "the `DIR` of the keys")
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to a `FILE` that only its owner may read, not to the terminal")
	cmd.Flags().IntVar(&days, "days", 0, "for `N` days; 0 is for ever")
	return cmd
}
