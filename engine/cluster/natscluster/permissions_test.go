package natscluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/isobar-io/isobar/engine/cluster"
)

const (
	wordsID = "words-1-1700000000"
	otherID = "other-2-1700000001"
)

// settled makes what nimbus makes before anybody comes, and returns it.
func settled(t *testing.T, s *site) *Store {
	t.Helper()
	nimbus := s.client(RoleNimbus, "nimbus-1")
	ctx := patient(t)
	for _, name := range []string{
		cluster.BucketTopologies, cluster.BucketAssignments, cluster.BucketSupervisors, cluster.BucketNimbus,
		cluster.BucketSecrets, cluster.BucketBlobs, cluster.TopologyBucket(wordsID), cluster.TopologyBucket(otherID),
	} {
		b, err := nimbus.Bucket(ctx, name, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(ctx, "there", []byte("since the beginning")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range objectSets {
		o, err := nimbus.Objects(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Put(ctx, "there", strings.NewReader("since the beginning"), "", nil); err != nil {
			t.Fatal(err)
		}
	}
	return nimbus
}

// act is something that a client tries, and whether it may.
type act struct {
	name string
	may  bool
	try  func(ctx context.Context, s *Store) error
}

func onBucket(name string, f func(ctx context.Context, b cluster.Bucket) error) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		b, err := s.Bucket(ctx, name, false)
		if err != nil {
			return err
		}
		return f(ctx, b)
	}
}

func get(name string) act {
	return act{"get from " + name, false, onBucket(name, func(ctx context.Context, b cluster.Bucket) error {
		_, err := b.Get(ctx, "there")
		return err
	})}
}

func list(name string) act {
	return act{"list " + name, false, onBucket(name, func(ctx context.Context, b cluster.Bucket) error {
		_, err := b.List(ctx)
		return err
	})}
}

func watchAll(name string) act {
	return act{"watch " + name, false, onBucket(name, func(ctx context.Context, b cluster.Bucket) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		entries, err := b.Watch(ctx, "")
		if err != nil {
			return err
		}
		for e := range entries {
			if e.Key == "" {
				return nil
			}
		}
		return errors.New("the watch has ended")
	})}
}

// putTo writes past the check of the bucket, which needs a right of its own.
func putTo(name, key string) act {
	return act{"put " + key + " to " + name, false, func(ctx context.Context, s *Store) error {
		b := &bucket{store: s, place: place{name}}
		_, err := b.Put(ctx, key, []byte("x"))
		return err
	}}
}

func deleteFrom(name, key string) act {
	return act{"delete " + key + " from " + name, false, func(ctx context.Context, s *Store) error {
		b := &bucket{store: s, place: place{name}}
		return b.Delete(ctx, key, 0)
	}}
}

func dropBucket(name string) act {
	return act{"delete bucket " + name, false, func(ctx context.Context, s *Store) error {
		return s.DeleteBucket(ctx, name)
	}}
}

func makeBucket(name string) act {
	return act{"make bucket " + name, false, func(ctx context.Context, s *Store) error {
		b := &bucket{store: s, place: place{name}}
		return s.makeStream(ctx, b.config())
	}}
}

func putObject(set, name string) act {
	return act{"put object to " + set, false, func(ctx context.Context, s *Store) error {
		o, err := s.Objects(ctx, set)
		if err == nil {
			_, err = o.Put(ctx, name, bytes.NewReader(make([]byte, 3*partBytes)), "", nil)
		}
		return err
	}}
}

func getObject(set string) act {
	return act{"get object from " + set, false, func(ctx context.Context, s *Store) error {
		o, err := s.Objects(ctx, set)
		if err != nil {
			return err
		}
		r, _, err := o.Get(ctx, "there")
		if err == nil {
			var got [64]byte
			_, err = r.Read(got[:])
		}
		return err
	}}
}

func asks(service string) act {
	return act{"request to " + service, false, func(ctx context.Context, s *Store) error {
		_, err := s.Request(ctx, service, []byte("hello"))
		return err
	}}
}

func serveAs(service string) act {
	return act{"serve " + service, false, func(_ context.Context, s *Store) error {
		stop, err := s.Serve(service, func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
		if err == nil {
			stop()
		}
		return err
	}}
}

// listen subscribes to whatever subject.
func listen(subject string) act {
	return act{"subscribe to " + subject, false, func(ctx context.Context, s *Store) error {
		subscription, err := s.subscribe(ctx, subject, "", func(*nats.Msg) {})
		if err == nil {
			err = subscription.Unsubscribe()
		}
		return err
	}}
}

// publish sends to whatever subject.
func publishTo(subject string) act {
	return act{"publish to " + subject, false, func(ctx context.Context, s *Store) error {
		if err := s.conn.Publish(subject, []byte("x")); err != nil {
			return err
		}
		s.settle(ctx)
		if denied := denial(s.conn.LastError()); denied != nil && denied.Subject == subject {
			return denied
		}
		return nil
	}}
}

func (a act) allowed() act { a.may = true; return a }

// TestPermissions: each role can do its work, and nothing of the others'.
func TestPermissions(t *testing.T) {
	s := newSite(t, true)
	nimbus := settled(t, s)
	for service, owner := range map[string]*Store{
		cluster.ServiceNimbus:               nimbus,
		cluster.SupervisorService("b.host"): s.client(RoleSupervisor, "b.host"),
		cluster.MasterService(otherID):      s.client(RoleTopology, otherID),
	} {
		stop, err := owner.Serve(service, func(_ context.Context, user string, _ []byte) ([]byte, error) { return []byte(user), nil })
		if err != nil {
			t.Fatalf("serve %s: %v", service, err)
		}
		t.Cleanup(stop)
		if got, err := nimbus.Request(patient(t), service, nil); err != nil || string(got) != "nimbus-1" {
			t.Errorf("nimbus asks %s: %q, %v", service, got, err)
		}
	}
	nobody := []act{ // may do any of this
		makeBucket("mine"), makeBucket(cluster.TopologyBucket("mine")), dropBucket(cluster.TopologyBucket(wordsID)), dropBucket(cluster.BucketAssignments),
		get(cluster.BucketTopologies), list(cluster.BucketTopologies), watchAll(cluster.BucketTopologies), putTo(cluster.BucketTopologies, "words"),
		get(cluster.BucketNimbus), putTo(cluster.BucketNimbus, cluster.KeyLeader), deleteFrom(cluster.BucketNimbus, cluster.KeyLeader),
		putTo(cluster.BucketAssignments, wordsID), putTo(cluster.BucketSecrets, wordsID), putTo(cluster.BucketBlobs, "x"), putTo(cluster.BucketBlobs, "there"), deleteFrom(cluster.BucketBlobs, "there"),
		putTo(cluster.BucketSupervisors, "b.host"), deleteFrom(cluster.BucketSupervisors, "b.host"),
		putTo(cluster.TopologyBucket(otherID), cluster.KeyStatus), putTo(cluster.TopologyBucket(otherID), cluster.KeyIntent),
		deleteFrom(cluster.TopologyBucket(otherID), cluster.KeyMaster), putTo(cluster.TopologyBucket(wordsID), cluster.KeyIntent),
		putTo(cluster.TopologyBucket(wordsID), cluster.KeyAssignment), putTo(cluster.TopologyBucket(wordsID), cluster.KeyCredentials),
		publishTo("$JS.API.STREAM.PURGE." + shelf{cluster.ObjectsBinaries}.stream()), publishTo("$JS.API.STREAM.DELETE." + shelf{cluster.ObjectsBlobs}.stream()),
		publishTo("$JS.API.STREAM.MSG.DELETE." + shelf{cluster.ObjectsBlobs}.stream()),
		asks(cluster.MasterService(otherID)), asks(cluster.SupervisorService("b.host")),
		serveAs(cluster.ServiceNimbus), serveAs(cluster.MasterService(otherID)), serveAs(cluster.SupervisorService("b.host")),
		listen(">"), listen(inboxPrefix + ">"), listen(identity{RoleNimbus, "nimbus-1"}.inbox() + ".>"), listen(replyPrefix + ">"), listen("$KV.>"),
		listen("$JS.>"), listen("_INBOX.>"), listen(objectPrefix + ">"), listen(servicePrefix + ">"),
		publishTo(identity{RoleUser, "bob"}.requests(cluster.ServiceNimbus)), publishTo(identity{RoleNimbus, "nimbus-1"}.inbox() + ".x"),
		publishTo(identity{RoleUser, "bob"}.replies(cluster.ServiceNimbus) + "x"), publishTo(identity{RoleNimbus, "nimbus-1"}.replies(cluster.MasterService(otherID)) + "x"),
		publishTo("$JS.API.CONSUMER.CREATE." + place{cluster.BucketAssignments}.stream()),
		publishTo("$JS.API.CONSUMER.CREATE." + place{cluster.TopologyBucket(wordsID)}.stream() + ".c"),
		publishTo("$JS.API.DIRECT.GET." + place{cluster.TopologyBucket(wordsID)}.stream()),
		publishTo("$JS.API.STREAM.PURGE." + place{cluster.TopologyBucket(wordsID)}.stream()),
		publishTo("$JS.API.STREAM.UPDATE." + place{cluster.TopologyBucket(wordsID)}.stream()),
		publishTo("$JS.API.STREAM.SNAPSHOT." + place{cluster.TopologyBucket(wordsID)}.stream()),
		publishTo(messages(place{cluster.BucketTopologies}.stream())), publishTo(messages(place{cluster.BucketNimbus}.stream())),
		publishTo("$JS.API.STREAM.NAMES"), publishTo("$JS.API.ACCOUNT.PURGE.x"), publishTo(changedPrefix + "assignments.x"),
	}
	for _, c := range []struct {
		role Role
		name string
		acts []act
	}{
		{RoleTopology, wordsID, []act{
			get(cluster.TopologyBucket(wordsID)).allowed(), list(cluster.TopologyBucket(wordsID)).allowed(), watchAll(cluster.TopologyBucket(wordsID)).allowed(),
			putTo(cluster.TopologyBucket(wordsID), cluster.KeyMaster).allowed(), putTo(cluster.TopologyBucket(wordsID), cluster.KeyStatus).allowed(),
			serveAs(cluster.MasterService(wordsID)).allowed(),
			get(cluster.TopologyBucket(otherID)), list(cluster.TopologyBucket(otherID)), watchAll(cluster.TopologyBucket(otherID)),
			get(cluster.BucketSecrets), get(cluster.BucketAssignments), watchAll(cluster.BucketAssignments), get(cluster.BucketSupervisors),
			get(cluster.BucketBlobs), publishTo(messages(place{cluster.BucketBlobs}.stream())),
			getObject(cluster.ObjectsBinaries), putObject(cluster.ObjectsBinaries, "x"), getObject(cluster.ObjectsBlobs), putObject(cluster.ObjectsBlobs, "x"),
			publishTo(messages(place{cluster.TopologyBucket(otherID)}.stream())), publishTo(messages(place{cluster.BucketSecrets}.stream())),
			publishTo(messages(shelf{cluster.ObjectsBlobs}.stream())), publishTo(messages(place{cluster.BucketAssignments}.stream())),
			asks(cluster.ServiceNimbus), serveAs(cluster.SupervisorService("a.host")), listen(place{cluster.TopologyBucket(otherID)}.changes()),
		}},
		{RoleSupervisor, "a.host", []act{
			get(cluster.BucketAssignments).allowed(), list(cluster.BucketAssignments).allowed(), watchAll(cluster.BucketAssignments).allowed(),
			get(cluster.BucketSecrets).allowed(), get(cluster.TopologyBucket(wordsID)).allowed(), watchAll(cluster.TopologyBucket(otherID)).allowed(),
			putTo(cluster.BucketSupervisors, "a.host").allowed(), deleteFrom(cluster.BucketSupervisors, "a.host").allowed(),
			getObject(cluster.ObjectsBinaries).allowed(), getObject(cluster.ObjectsBlobs).allowed(), get(cluster.BucketBlobs).allowed(),
			asks(cluster.ServiceNimbus).allowed(), serveAs(cluster.SupervisorService("a.host")).allowed(),
			putObject(cluster.ObjectsBinaries, "x"), putObject(cluster.ObjectsBlobs, "x"),
			putTo(cluster.TopologyBucket(wordsID), cluster.KeyStatus), putTo(cluster.TopologyBucket(wordsID), cluster.KeyMaster),
			serveAs(cluster.MasterService(wordsID)),
		}},
		{RoleUser, "alice", clientActs("user")},
		{RoleAdmin, "alice", clientActs("admin")},
	} {
		t.Run(string(c.role), func(t *testing.T) {
			client := s.client(c.role, c.name)
			for _, a := range append(c.acts, nobody...) {
				err := a.try(patient(t), client)
				var denied *ErrDenied
				switch {
				case a.may && err != nil:
					t.Errorf("may not %s: %v", a.name, err)
				case !a.may && !errors.As(err, &denied):
					t.Errorf("may %s: %v", a.name, err)
				}
			}
		})
	}
	for _, name := range []string{cluster.BucketTopologies, cluster.BucketAssignments, cluster.TopologyBucket(otherID)} {
		b, err := nimbus.Bucket(patient(t), name, false)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := b.List(patient(t)); err != nil || len(list) != 1 {
			t.Errorf("in the end %s has %v, %v", name, list, err)
		}
	}
}

func clientActs(role Role) []act {
	return []act{
		asks(cluster.ServiceNimbus).allowed(), putObject(cluster.ObjectsBinaries, "new").allowed(), putObject(cluster.ObjectsBlobs, "new").allowed(),
		getObject(cluster.ObjectsBinaries), getObject(cluster.ObjectsBlobs),
		get(cluster.BucketBlobs), publishTo(messages(place{cluster.BucketBlobs}.stream())),
		get(cluster.BucketAssignments), watchAll(cluster.BucketAssignments), get(cluster.BucketSecrets), get(cluster.BucketSupervisors),
		get(cluster.TopologyBucket(wordsID)), watchAll(cluster.TopologyBucket(wordsID)), putTo(cluster.TopologyBucket(wordsID), cluster.KeyStatus),
		publishTo(shelf{cluster.ObjectsBinaries}.data("user.bob.x") + "0"), publishTo(shelf{cluster.ObjectsBinaries}.data("nimbus.nimbus-1.x") + "0"),
		serveAs(cluster.MasterService(wordsID)), serveAs(cluster.SupervisorService("a.host")),
		publishTo(identity{role, "bob"}.requests(cluster.ServiceNimbus)),
		publishTo(messages(place{cluster.TopologyBucket(otherID)}.stream())), publishTo(messages(place{cluster.BucketSecrets}.stream())),
		publishTo(messages(shelf{cluster.ObjectsBlobs}.stream())), publishTo(messages(place{cluster.BucketAssignments}.stream())),
	}
}

// TestDamagedRecord: JetStream's answer to somebody who asks for it on the subject of a
// value is never taken for a value.
func TestDamagedRecord(t *testing.T) {
	s := newSite(t, true)
	nimbus := settled(t, s)
	ctx := patient(t)
	b, err := nimbus.Bucket(ctx, cluster.TopologyBucket(otherID), false)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := b.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for e := range entries {
		if e.Key == "" {
			break
		}
	}
	intent := place{cluster.TopologyBucket(otherID)}.subject("there")
	vandal := s.client(RoleTopology, wordsID)
	if err := vandal.conn.PublishRequest(place{cluster.TopologyBucket(wordsID)}.subject(cluster.KeyStatus), intent, []byte("x")); err != nil {
		t.Fatal(err)
	}
	vandal.settle(ctx)
	for {
		_, err = b.Get(ctx, "there")
		if err != nil {
			break
		}
	}
	if !errors.Is(err, errDamaged) {
		t.Errorf("get: %v", err)
	}
	if list, err := b.List(ctx); err != nil || len(list) != 1 || list[0].Key != "there" || list[0].Value == nil || len(list[0].Value) > 0 || list[0].Revision == 0 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, err := b.Create(ctx, "there", []byte("new")); !errors.Is(err, cluster.ErrExists) {
		t.Errorf("create: %v", err)
	}
	if _, err := b.Put(ctx, "there", []byte("mended")); err != nil {
		t.Fatal(err)
	}
	if e := <-entries; e.Key != "there" || string(e.Value) != "mended" {
		t.Errorf("watched: %+v", e)
	}
}

// TestForeignReply: a service answers on the requester's own subject or not at all.
func TestForeignReply(t *testing.T) {
	s := newSite(t, true)
	nimbus := settled(t, s)
	ctx := patient(t)
	stop, err := nimbus.Serve(cluster.ServiceNimbus, func(context.Context, string, []byte) ([]byte, error) { return []byte("forged"), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	alice := s.client(RoleUser, "alice")
	target := place{cluster.BucketTopologies}.subject("there")
	if err := alice.conn.PublishRequest(alice.who.requests(cluster.ServiceNimbus), target, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Request(ctx, cluster.ServiceNimbus, nil); err != nil { // comes after it
		t.Fatal(err)
	}
	stop() // and so does the end
	if err := nimbus.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := s.client(RoleNimbus, "nimbus-2").Bucket(ctx, cluster.BucketTopologies, false)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := b.Get(ctx, "there"); err != nil || string(e.Value) != "since the beginning" {
		t.Errorf("the record is %q, %v", e.Value, err)
	}
}

func TestPermissionsOfNobody(t *testing.T) {
	for _, c := range []identity{{"king", "a"}, {RoleUser, ""}, {RoleUser, "supervisor:a"}, {"local", "local"}} {
		if p, err := PermissionsOf(c.role, c.name); err == nil {
			t.Errorf("%v may %v", c, p)
		}
	}
}
