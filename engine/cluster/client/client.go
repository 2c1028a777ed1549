// Package client is how commands talk to a cluster: where it is, and requests to nimbus.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/natscluster"
)

// DefaultURL is where `isobar dev` has its coordination store.
const DefaultURL = "nats://127.0.0.1:4222"

// Environment variables that say where the cluster is. They count more than the file.
const (
	EnvNATS  = "ISOBAR_NATS" // URLs, separated by commas
	EnvCreds = "ISOBAR_CREDS"
	EnvCA    = "ISOBAR_CA"
	EnvCert  = "ISOBAR_CERT"
	EnvKey   = "ISOBAR_KEY"
)

// File returns the path of the file that says where a user's cluster is.
func File() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "isobar", "client.yaml"), nil
}

// access is what the file holds.
type access struct {
	NATS  []string `yaml:"nats"`
	Creds string   `yaml:"creds"`
	CA    string   `yaml:"ca"`
	Cert  string   `yaml:"cert"`
	Key   string   `yaml:"key"`
}

// Access returns how the cluster is reached: by what is given, else by the environment,
// else by the user's file, else on this machine.
func Access(given cluster.StoreAccess) (cluster.StoreAccess, error) {
	var file access
	if path, err := File(); err == nil {
		data, err := os.ReadFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return given, fmt.Errorf("read where the cluster is: %w", err)
		default:
			d := yaml.NewDecoder(strings.NewReader(string(data)))
			d.KnownFields(true)
			if err := d.Decode(&file); err != nil {
				return given, fmt.Errorf("read where the cluster is from %s: %w; it has nats, creds, ca, cert and key", path, err)
			}
		}
	}
	if len(given.URLs) == 0 {
		if env := os.Getenv(EnvNATS); env != "" {
			given.URLs = strings.Split(env, ",")
		} else if given.URLs = file.NATS; len(file.NATS) == 0 {
			given.URLs = []string{DefaultURL}
		}
	}
	given.Creds = cmp.Or(given.Creds, os.Getenv(EnvCreds), file.Creds)
	given.CA = cmp.Or(given.CA, os.Getenv(EnvCA), file.CA)
	given.Cert = cmp.Or(given.Cert, os.Getenv(EnvCert), file.Cert)
	given.Key = cmp.Or(given.Key, os.Getenv(EnvKey), file.Key)
	return given, nil
}

// Client talks to a cluster.
type Client struct {
	Store cluster.Store
	where string
}

// Connect returns a Client of the cluster that access leads to. It does not wait for the
// cluster to answer.
func Connect(given cluster.StoreAccess) (*Client, error) {
	a, err := Access(given)
	if err != nil {
		return nil, err
	}
	s, err := natscluster.Open(a, natscluster.Options{})
	if err != nil {
		return nil, err
	}
	return &Client{s, strings.Join(a.URLs, ",")}, nil
}

// Over returns a Client over an open coordination store.
func Over(s cluster.Store) *Client { return &Client{s, "the coordination store"} }

// Close closes the connection.
func (c *Client) Close() error { return c.Store.Close() }

// patience is how long a cluster without a leading nimbus is asked again: after a leader
// has gone, the next one takes over.
const patience = 20 * time.Second

// connectTime is how long a connection may take.
const connectTime = 3 * time.Second

// Call sends a request to nimbus and decodes its reply into reply, unless that is nil.
func (c *Client) Call(ctx context.Context, verb string, body, reply any) error {
	call := cluster.Call{Verb: verb}
	var err error
	if body != nil {
		if call.Body, err = json.Marshal(body); err != nil {
			return err
		}
	}
	data, err := json.Marshal(call)
	if err != nil {
		return err
	}
	answer, err := c.request(ctx, verb, data)
	if err != nil {
		return err
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return fmt.Errorf("read the reply of nimbus to %q: %w", verb, err)
	}
	return nil
}

// looks are the verbs that change nothing and take no time: they are asked again when no
// answer comes, because whoever has the request may be frozen, or cut off.
var looks = []string{
	cluster.VerbCheck, cluster.VerbList, cluster.VerbStatus, cluster.VerbSupervisors, cluster.VerbHealth,
	cluster.VerbConfig, cluster.VerbBlobs, cluster.VerbHead,
}

// lookTime is how long the answer to such a request may take.
const lookTime = 5 * time.Second

// commands are the verbs by which nimbus notes what is wanted, which takes it a moment.
var commands = []string{
	cluster.VerbSubmit, cluster.VerbKill, cluster.VerbActivate, cluster.VerbDeactivate, cluster.VerbRebalance,
	cluster.VerbLogLevel, cluster.VerbCredentials, cluster.VerbForget,
}

// commandTime is how long the answer to such a request may take.
const commandTime = 20 * time.Second

// command sends a request once that may not be sent again if it was received.
func (c *Client) command(ctx context.Context, verb string, data []byte) ([]byte, error) {
	if !slices.Contains(commands, verb) {
		return c.Store.Request(ctx, cluster.ServiceNimbus, data)
	}
	once, done := context.WithTimeout(ctx, commandTime)
	defer done()
	answer, err := c.Store.Request(once, cluster.ServiceNimbus, data)
	if err != nil && once.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("nimbus has not answered for %v: it is not known whether it was done, look and ask again: %w", commandTime, err)
	}
	return answer, err
}

// ask sends a request once.
func (c *Client) ask(ctx context.Context, verb string, data []byte) (answer []byte, again bool, err error) {
	if !slices.Contains(looks, verb) {
		answer, err = c.command(ctx, verb, data)
		return answer, errors.Is(err, cluster.ErrUnserved), err
	}
	once, done := context.WithTimeout(ctx, lookTime)
	defer done()
	answer, err = c.Store.Request(once, cluster.ServiceNimbus, data)
	return answer, errors.Is(err, cluster.ErrUnavailable) && ctx.Err() == nil, err
}

// request asks until there is somebody who answers. A request that may have been carried
// out is not sent again. Once somebody has it, it takes its time: a savepoint may need minutes.
func (c *Client) request(ctx context.Context, verb string, data []byte) ([]byte, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	away := time.NewTimer(connectTime)
	defer away.Stop()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	hint := fmt.Sprintf("start a cluster with 'isobar dev', or say where it is (--nats URL, %s)", EnvNATS)
	for {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case waiting.Err() != nil:
			return nil, fmt.Errorf("no nimbus answers at %s: %s", c.where, hint)
		}
		connected := c.Store.Connected()
		if connected {
			answer, again, err := c.ask(ctx, verb, data)
			if !again {
				return answer, err
			}
		}
		select {
		case <-again.C:
		case <-away.C:
			if !connected {
				_, _, err := c.ask(ctx, verb, data) // it tells why
				return nil, unconnected(c.where, err, hint)
			}
		case <-waiting.Done():
		}
	}
}

// unconnected says why there is no connection. Its cause comes as text.
func unconnected(where string, err error, hint string) error {
	text := strings.ToLower(fmt.Sprint(err))
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("authorization violation"), has("authentication expired"), has("authentication revoked"):
		return fmt.Errorf("the server at %s refuses the credentials (%w): give those of this cluster that are not expired (--creds FILE, %s)", where, err, EnvCreds)
	case has("x509:"):
		return fmt.Errorf("the certificate of the server at %s is not trusted (%w): name its authority (--ca FILE, %s), and the server as its certificate does", where, err, EnvCA)
	}
	return fmt.Errorf("nothing answers at %s (%w): %s", where, err, hint)
}
