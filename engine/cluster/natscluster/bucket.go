package natscluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/isobar-io/isobar/engine/cluster"
)

const (
	// ValueBytesMax is how large a value may be.
	ValueBytesMax = 1 << 20
	// headerBytes is what the header of a message may need of the server's limit.
	headerBytes = 4 << 10

	// headerValue tells that a message is a value, and by which format.
	headerValue = "Isobar-Value"
	valueFormat = "1"
	// headerOperation marks deletions as the nats command knows them.
	headerOperation = "KV-Operation"
	// markerTTL is for how long a deletion is kept. Whoever is away for longer sees what
	// there is when he comes back.
	markerTTL = time.Hour
)

// Bucket implements cluster.Store.
func (s *Store) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b := &bucket{store: s, place: place{name}}
	err := b.open(ctx)
	if create && errors.Is(err, cluster.ErrNotFound) {
		if err = s.makeStream(ctx, b.config()); err == nil {
			err = b.open(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", name, err)
	}
	return b, nil
}

type bucket struct {
	store *Store
	place place
	// stream is a name with methods.
	stream jetstream.Stream
}

func (b *bucket) config() jetstream.StreamConfig {
	values := b.place.values() + ">"
	return jetstream.StreamConfig{
		Name:              b.place.stream(),
		Description:       "isobar: values of bucket " + b.place.bucket,
		Subjects:          []string{values},
		MaxMsgsPerSubject: 1,
		Storage:           jetstream.FileStorage,
		Replicas:          b.store.opts.Replicas,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		DenyPurge:         true,
		AllowMsgTTL:       true, // of deletions
		RePublish: &jetstream.RePublish{
			Source: values, Destination: b.place.changes(), HeadersOnly: true,
		},
	}
}

// open finds the stream, and checks that it is one of ours.
func (b *bucket) open(ctx context.Context) error {
	stream, err := b.store.stream(ctx, b.place.stream())
	if err != nil {
		return err
	}
	b.stream = stream
	is, want := stream.CachedInfo().Config, b.config()
	switch {
	case !slices.Equal(is.Subjects, want.Subjects), is.MaxMsgsPerSubject != 1, is.Storage != want.Storage,
		is.AllowDirect, is.AllowRollup, !is.AllowMsgTTL, is.RePublish == nil, is.RePublish != nil && *is.RePublish != *want.RePublish:
		return fmt.Errorf("stream %s was not made by isobar, or by another version of it: its configuration is another", want.Name)
	}
	return nil
}

// stream finds a stream.
func (s *Store) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	return ask(ctx, s, info(name), name, func(ctx context.Context) (jetstream.Stream, error) {
		return s.js.Stream(ctx, name)
	})
}

// makeStream makes a stream if it is not there.
func (s *Store) makeStream(ctx context.Context, c jetstream.StreamConfig) error {
	if err := checkVersion(s.conn.ConnectedServerVersion()); err != nil {
		return err
	}
	err := s.do(ctx, "$JS.API.STREAM.CREATE."+c.Name, c.Name, func(ctx context.Context) error {
		_, err := s.js.CreateStream(ctx, c)
		return err
	})
	if apiCode(err) == codeNoPeers { // a group that has just started does not know all of its servers yet
		err = s.unavailable(err)
	}
	if err != nil && apiCode(err) != codeStreamNameInUse {
		return fmt.Errorf("make stream %s with %d replicas: %w", c.Name, c.Replicas, err)
	}
	return nil
}

// checkVersion refuses servers that are too old. One that tells none is no server now.
func checkVersion(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return nil
	}
	if major < 2 || major == 2 && minor < 12 {
		return fmt.Errorf("the NATS server is of version %s: isobar takes 2.12 or later", version)
	}
	return nil
}

// valueBytesMax is how large a value may be on this server.
func (s *Store) valueBytesMax() int {
	if most := s.conn.MaxPayload(); most > 0 && most-headerBytes < ValueBytesMax {
		return int(most - headerBytes)
	}
	return ValueBytesMax
}

var errNoKey = errors.New("a key has a name")

// write stores a message under a key; want is the revision that the key must have, 0
// that it is not there, below 0 any.
func (b *bucket) write(ctx context.Context, verb, key string, header nats.Header, value []byte, want int64) (uint64, error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("%s %q in bucket %q: %w", verb, key, b.place.bucket, err)
	}
	if key == "" {
		return fail(errNoKey)
	}
	if most := b.store.valueBytesMax(); len(value) > most {
		return fail(fmt.Errorf("the value has %d bytes, more than the %d that a value may have", len(value), most))
	}
	m := &nats.Msg{Subject: b.place.subject(key), Header: header, Data: value}
	// What was sent once is not sent again by itself: the first may have arrived.
	opts := []jetstream.PublishOpt{jetstream.WithExpectStream(b.place.stream()), jetstream.WithRetryAttempts(0)}
	if want >= 0 {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(uint64(want)))
	}
	revision, err := b.store.publish(ctx, b.place.stream(), m, opts...)
	if err != nil {
		return fail(err)
	}
	return revision, nil
}

// publish stores a message in a stream.
func (s *Store) publish(ctx context.Context, stream string, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	var revision uint64
	err := s.do(ctx, m.Subject, stream, func(ctx context.Context) error {
		ack, err := s.js.PublishMsg(ctx, m, opts...)
		if err == nil {
			revision = ack.Sequence
		}
		return err
	})
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		// Nobody takes the subject: the stream is not there, or has no leader now.
		if _, found := s.stream(ctx, stream); errors.Is(found, cluster.ErrNotFound) {
			return 0, found
		}
		return 0, s.unavailable(err)
	}
	return revision, err
}

func valueHeader() nats.Header { return nats.Header{headerValue: {valueFormat}} }

func (b *bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return b.write(ctx, "put", key, valueHeader(), value, -1)
}

func (b *bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return 0, fmt.Errorf("update %q in bucket %q: no key has revision 0: %w", key, b.place.bucket, cluster.ErrMoved)
	}
	return b.write(ctx, "update", key, valueHeader(), value, int64(revision))
}

func (b *bucket) Delete(ctx context.Context, key string, revision uint64) error {
	want := int64(-1)
	if revision != 0 {
		want = int64(revision)
	}
	header := nats.Header{
		headerOperation:        {"DEL"},
		jetstream.MsgTTLHeader: {strconv.Itoa(int(markerTTL.Seconds()))},
	}
	_, err := b.write(ctx, "delete", key, header, nil, want)
	return err
}

// Create sets a key that is not there. Where it was deleted, the deletion is what the
// key must still have.
func (b *bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	var last int64
	for {
		revision, err := b.write(ctx, "create", key, valueHeader(), value, last)
		if !errors.Is(err, cluster.ErrMoved) {
			return revision, err
		}
		e, found, err := b.last(ctx, key)
		switch {
		case errors.Is(err, cluster.ErrNotFound):
			last = 0
		case err != nil && !errors.Is(err, errDamaged):
			return 0, fmt.Errorf("create %q in bucket %q: %w", key, b.place.bucket, err)
		case found, err != nil:
			return 0, fmt.Errorf("create %q in bucket %q: %w", key, b.place.bucket, cluster.ErrExists)
		default:
			last = int64(e.Revision)
		}
	}
}

func (b *bucket) Get(ctx context.Context, key string) (cluster.Entry, error) {
	e, found, err := b.last(ctx, key)
	if err == nil && !found {
		err = cluster.ErrNotFound
	}
	if err != nil {
		return cluster.Entry{}, fmt.Errorf("get %q in bucket %q: %w", key, b.place.bucket, err)
	}
	return e, nil
}

// last returns the last message of a key; found is false if it is a deletion.
func (b *bucket) last(ctx context.Context, key string) (e cluster.Entry, found bool, err error) {
	if key == "" {
		return e, false, errNoKey
	}
	m, err := lastOf(ctx, b.store, b.stream, b.place.stream(), b.place.subject(key))
	if err != nil {
		return e, false, err
	}
	return b.entry(m)
}

// lastOf returns the last message of a subject.
func lastOf(ctx context.Context, s *Store, stream jetstream.Stream, name, subject string) (*jetstream.RawStreamMsg, error) {
	return ask(ctx, s, messages(name), name, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return stream.GetLastMsgForSubject(ctx, subject)
	})
}

// subjectsOf returns the subjects that fit a filter.
func subjectsOf(ctx context.Context, s *Store, stream jetstream.Stream, name, filter string) (map[string]uint64, error) {
	return ask(ctx, s, info(name), name, func(ctx context.Context) (map[string]uint64, error) {
		about, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, err
		}
		return about.State.Subjects, nil
	})
}

// errDamaged: a value was overwritten by what is no value.
var errDamaged = errors.New("it is damaged: what is there was not written as a value")

// entry reads a message; found is false if it is a deletion.
func (b *bucket) entry(m *jetstream.RawStreamMsg) (e cluster.Entry, found bool, err error) {
	key, err := b.place.key(m.Subject)
	if err != nil {
		return e, false, err
	}
	e = cluster.Entry{Key: key, Revision: m.Sequence}
	if m.Header.Get(headerOperation) != "" {
		return e, false, nil
	}
	if is := m.Header.Get(headerValue); is != valueFormat {
		return e, false, fmt.Errorf("revision %d of %q: %w", m.Sequence, key, errDamaged)
	}
	e.Value = append([]byte{}, m.Data...)
	return e, true, nil
}

// keys returns the keys that the bucket has or had.
func (b *bucket) keys(ctx context.Context) ([]string, error) {
	subjects, err := subjectsOf(ctx, b.store, b.stream, b.place.stream(), ">")
	if err != nil {
		return nil, err
	}
	var keys []string
	for subject := range subjects {
		key, err := b.place.key(subject)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// read returns what there is of the keys with a prefix, in the order of their revisions.
// damaged are those of which nobody knows; their values are empty.
func (b *bucket) read(ctx context.Context, prefix string) (list, damaged []cluster.Entry, err error) {
	keys, err := b.keys(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		e, found, err := b.last(ctx, key)
		switch {
		case errors.Is(err, errDamaged):
			damaged = append(damaged, cluster.Entry{Key: key, Value: []byte{}, Revision: e.Revision})
		case errors.Is(err, cluster.ErrNotFound): // a deletion that has just been forgotten
		case err != nil:
			return nil, nil, err
		case found:
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(x, y cluster.Entry) int { return cmp.Compare(x.Revision, y.Revision) })
	return list, damaged, nil
}

func (b *bucket) List(ctx context.Context) ([]cluster.Entry, error) {
	list, damaged, err := b.read(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list bucket %q: %w", b.place.bucket, err)
	}
	return append(list, damaged...), nil
}
