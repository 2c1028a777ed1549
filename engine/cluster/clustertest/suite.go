// Package clustertest holds the conformance suite of cluster.Store: whoever implements
// it runs Run. NewProxy is a wire that a test can cut, for stores behind a network.
package clustertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Place is a new and empty cluster.
type Place struct {
	// Connect returns a new client whose requests are from user. It may do everything.
	// The suite closes it.
	Connect func(user string) cluster.Store
	// Stop ends the server in order, Start brings it back with what it has stored.
	Stop, Start func()
	// Cut makes the server unreachable for one client, at once, until Heal.
	Cut, Heal func(cluster.Store)
}

// patience is how long the suite waits for what must happen.
const patience = 30 * time.Second

// Run runs the suite; place makes a cluster for each of its tests.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, p Place)
	}{
		{"BucketLife", bucketLife},
		{"CompareAndSwap", compareAndSwap},
		{"CreateRace", createRace},
		{"UpdateRace", updateRace},
		{"Values", values},
		{"ValueTooLarge", valueTooLarge},
		{"Names", names},
		{"CancelledContext", cancelledContext},
		{"Watch", watchChanges},
		{"WatchPrefix", watchPrefix},
		{"WatchWhileWritten", watchWhileWritten},
		{"WatchAfterCut", watchAfterCut},
		{"WatchAfterRestart", watchAfterRestart},
		{"Outage", outage},
		{"Objects", objectLife},
		{"ObjectFrom", objectFrom},
		{"ObjectRefused", objectRefused},
		{"ObjectReplaced", objectReplaced},
		{"Request", request},
		{"RequestErrors", requestErrors},
		{"RequestMany", requestMany},
		{"RequestNobody", requestNobody},
		{"RequestGivenUp", requestGivenUp},
		{"RequestTooLate", requestTooLate},
		{"ServeAfterOutage", serveAfterOutage},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := place(t)
			connect := p.Connect
			p.Connect = func(user string) cluster.Store {
				s := connect(user)
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				return s
			}
			c.test(t, p)
		})
	}
}

// patient returns a context that ends before the test's deadline, with the test.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func bucket(t *testing.T, s cluster.Store, name string) cluster.Bucket {
	t.Helper()
	b, err := s.Bucket(patient(t), name, true)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b cluster.Bucket, key, value string) uint64 {
	t.Helper()
	revision, err := b.Put(patient(t), key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func remove(t *testing.T, b cluster.Bucket, key string) {
	t.Helper()
	if err := b.Delete(patient(t), key, 0); err != nil {
		t.Fatal(err)
	}
}

// content returns what List says.
func content(t *testing.T, b cluster.Bucket) map[string]string {
	t.Helper()
	list, err := b.List(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		if e.Value == nil || e.Revision == 0 {
			t.Errorf("listed: %+v", e)
		}
		all[e.Key] = string(e.Value)
	}
	if len(all) != len(list) {
		t.Errorf("a key is listed twice: %v", list)
	}
	return all
}

// wants checks an error for its kind; nil for none.
func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: error is %v, want %v", what, err, want)
	}
}

// awaitConnected waits until the store says that it answers, or that it does not.
func awaitConnected(t *testing.T, s cluster.Store, want bool) {
	t.Helper()
	ctx := patient(t)
	for s.Connected() != want {
		select {
		case <-s.Changes():
		case <-ctx.Done():
			t.Fatalf("connected: %v, want %v", s.Connected(), want)
		}
	}
}

// answered repeats what the store has no answer for yet, as after an outage.
func answered(t *testing.T, f func() error) {
	t.Helper()
	ctx := patient(t)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatal(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}
