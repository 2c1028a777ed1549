package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

// dial connects to a cluster, as client.Connect does.
type dial func(cluster.StoreAccess) (*client.Client, error)

// reach says how a cluster is reached: the flags that all commands about one have.
type reach struct {
	dial   dial
	access cluster.StoreAccess
	asJSON bool
}

func (r *reach) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&r.access.URLs, "nats", nil, "reach the cluster's coordination store at `URL` (default $"+client.EnvNATS+", or this machine)")
	f.StringVar(&r.access.Creds, "creds", "", "prove who you are with a credentials `FILE`")
	f.StringVar(&r.access.CA, "ca", "", "trust the authority in a PEM `FILE`")
	f.StringVar(&r.access.Cert, "cert", "", "show the certificate in a PEM `FILE`")
	f.StringVar(&r.access.Key, "key", "", "the private key of --cert, a PEM `FILE`")
}

// addFlagsJSON adds the flags, and --json.
func (r *reach) addFlagsJSON(cmd *cobra.Command) {
	r.addFlags(cmd)
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print JSON")
}

// with connects to the cluster and calls do.
func (r *reach) with(cmd *cobra.Command, do func(ctx context.Context, c *client.Client) error) error {
	c, err := r.dial(r.access)
	if err != nil {
		return err
	}
	return errors.Join(do(cmd.Context(), c), c.Close())
}

// request sends a request and returns its reply.
func request[T any](ctx context.Context, c *client.Client, verb string, body any) (reply T, err error) {
	return reply, c.Call(ctx, verb, body, &reply)
}

// detail returns all about a topology.
func detail(ctx context.Context, c *client.Client, name string) (cluster.Detail, error) {
	return request[cluster.Detail](ctx, c, cluster.VerbStatus, cluster.Named{Name: name})
}

// over reports whether a topology is not there, as far as the cluster tells.
func over(ctx context.Context, c *client.Client, name string) bool {
	all, err := request[[]cluster.Summary](ctx, c, cluster.VerbList, nil)
	return err == nil && !slices.ContainsFunc(all, func(s cluster.Summary) bool { return s.Name == name })
}

// sayOver says that a topology is not there any more, beside what is printed of it.
func sayOver(w io.Writer, name string) error {
	_, err := fmt.Fprintf(w, "isobar: topology %s has ended\n", name)
	return err
}

// changed is what a command has made of a topology, as --json prints it.
type changed struct {
	Topology string         `json:"topology"`
	Status   cluster.Status `json:"status"`
}

// change has nimbus change a topology and says so: text has the name in it.
func (r *reach) change(cmd *cobra.Command, verb string, body any, to changed, text string) error {
	return r.with(cmd, func(ctx context.Context, c *client.Client) error {
		if err := c.Call(ctx, verb, body, nil); err != nil {
			return err
		}
		return r.say(cmd, to, text, to.Topology)
	})
}

// say prints v as JSON if that is wanted, else a text.
func (r *reach) say(cmd *cobra.Command, v any, format string, args ...any) error {
	if r.asJSON {
		return printJSON(cmd.OutOrStdout(), v)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
