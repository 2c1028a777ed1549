package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// Case: a command that was stuck let everybody wait. A nimbus that is frozen is waited for as
// long as another one may need to take its place, and what it has received is not sent again.
// What takes its time is given it.
func TestFrozenNimbusIsNotWaitedFor(t *testing.T) {
	const patient = time.Hour
	for _, c := range []struct {
		verb, want  string
		least, most time.Duration
	}{
		{cluster.VerbList, "no nimbus answers at", patience, patience + lookTime},
		{cluster.VerbKill, "nimbus has not answered for 20s: it is not known whether it was done", commandTime, commandTime},
		{cluster.VerbSavepoint, "deadline exceeded", patient, patient},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := memcluster.New()
			nimbus, client := server.Connect("nimbus"), Over(server.Connect("ann"))
			var received atomic.Int32
			_, err := nimbus.Serve(cluster.ServiceNimbus, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
				received.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			began := time.Now()
			err = client.Call(ctx, c.verb, cluster.Named{Name: "wc"}, nil)
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), c.want) || took < c.least || took > c.most {
				t.Errorf("%s: after %v: %v", c.verb, took, err)
			}
			if n := received.Load(); c.verb != cluster.VerbList && n != 1 {
				t.Errorf("%s was received %d times", c.verb, n)
			}
			if err := errors.Join(client.Close(), nimbus.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhyThereIsNoConnection(t *testing.T) {
	for cause, want := range map[string]string{
		"nats: Authorization Violation":                                                    "the server at tls://a refuses the credentials (nats: Authorization Violation): ",
		"nats: user authentication expired":                                                "the server at tls://a refuses the credentials (",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority": "the certificate of the server at tls://a is not trusted (",
		"dial tcp: connection refused":                                                     "nothing answers at tls://a (dial tcp: connection refused): start one",
	} {
		if got := unconnected("tls://a", errors.New(cause), "start one").Error(); !strings.HasPrefix(got, want) {
			t.Errorf("of %q it is told %q, want %q", cause, got, want)
		}
	}
}
