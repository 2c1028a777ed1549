package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// credentials returns what a topology is given.
func (c *testCluster) credentials(id string) (values cluster.Credentials) {
	c.t.Helper()
	b, err := c.machine.Bucket(context.Background(), cluster.TopologyBucket(id), false)
	c.must(err)
	e, err := b.Get(context.Background(), cluster.KeyCredentials)
	c.must(err)
	c.must(json.Unmarshal(e.Value, &values))
	return values
}

func TestUploadCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "creds")
	if err := os.WriteFile(file, []byte("# for the database\n\nuser = me\npassword=a=b \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.prints("Uploaded credentials of topology words: token, user\n", "upload-credentials", "words", "user=ann", "token=x=y")
		if got, want := c.credentials(a.ID), (cluster.Credentials{"user": "ann", "token": "x=y"}); !maps.Equal(got, want) {
			t.Errorf("the topology is given %v", got)
		}
		var done uploaded
		if c.json(&done, "upload-credentials", "words", "-f", file, "password=arg"); done.Topology != "words" || !slices.Equal(done.Keys, []string{"password", "user"}) {
			t.Errorf("JSON holds %+v", done)
		}
		if got, want := c.credentials(a.ID), (cluster.Credentials{"user": "me", "password": "arg"}); !maps.Equal(got, want) {
			t.Errorf("with a file the topology is given %q", got)
		}
		c.fails(exitUsage, "upload-credentials words", "no credentials: give them as KEY=VALUE")
		c.fails(exitUsage, "upload-credentials")
		c.fails(exitUsage, "upload-credentials words a=1 a=2", "credential 2: it must be KEY=VALUE, each key once")
		c.fails(exitUsage, "upload-credentials words a=1 b=\xff", "credential 2: it is not UTF-8 and would arrive changed")
		c.fails(exitFailed, "upload-credentials other a=1", `topology "other" is not there`)
		c.fails(exitFailed, "upload-credentials words -f "+file+"x", "no such file")
	})
}

// A secret that was written wrongly is not printed.
func TestUploadCredentialsPrintsNoSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "creds")
	if err := os.WriteFile(file, []byte("a=1\nhunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		for args, want := range map[string]string{"a=1 hunter2": "credential 2", "=hunter2": "credential 1", "-f " + file: file + ", line 2"} {
			code, out, errOut := c.call(strings.Fields("upload-credentials words " + args)...)
			if code != exitUsage || strings.Contains(out+errOut, "hunter2") || !strings.Contains(errOut, want+": it must be KEY=VALUE") {
				t.Errorf("%s: exit code %d, %q, %q", args, code, out, errOut)
			}
		}
		if _, out, errOut := c.call("upload-credentials", "words", "a=hunter2", "--json"); strings.Contains(out+errOut, "hunter2") {
			t.Errorf("prints %q, %q", out, errOut)
		}
	})
}

func TestCredentialsFromStandardInput(t *testing.T) {
	got, err := secretsOf(strings.NewReader("a=1\nb=2"), "-", []string{"b=3"})
	if err != nil || !maps.Equal(got, cluster.Credentials{"a": "1", "b": "3"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := secretsOf(strings.NewReader("a="+string(bytes.Repeat([]byte("x"), 1<<20))), "-", nil); err == nil || !strings.Contains(err.Error(), "read credentials from -") {
		t.Errorf("a line that is too long: %v", err)
	}
}

func TestConfigGetAsksTheCluster(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.prints("nimbus.admins: root\n", "config", "get", "nimbus.admins")
		c.prints("nimbus.lease.secs: 15\n", "config", "get", "nimbus.lease.secs")
		var all map[string]any
		if c.json(&all, "config", "get", "nimbus.lease.secs"); len(all) != 1 || all["nimbus.lease.secs"] != 15. {
			t.Errorf("JSON holds %v", all)
		}
		if _, out, _ := c.call("config", "get"); !strings.Contains(out, "\nnimbus.lease.secs: 15\nnimbus.monitor.freq.secs: 10\n") {
			t.Errorf("all of it is\n%s", out)
		}
		c.fails(exitFailed, "config get nope.nope", `the cluster has no configuration key "nope.nope", 'isobar config get' shows all`)
		c.fails(exitFailed, "config get nimbus.lease.sec", `the cluster has no configuration key "nimbus.lease.sec", did you mean nimbus.lease.secs?`)
		c.fails(exitUsage, "config get a b")
	})
	contains(t, []string{"config", "topology.frame.tuples"}, "topology.frame.tuples = 1024\n") // get is no key
}
