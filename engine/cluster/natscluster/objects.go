package natscluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/isobar-io/isobar/engine/cluster"
)

// partBytes is how much of an object is in one message.
const partBytes = 256 << 10

// Objects implements cluster.Store. Each part of an object has a subject of its own, and
// so has what there is of the object, which is written last: readers see the old or the
// new content. The parts of the old one stay for a while, for those who are reading it;
// see [Store.Sweep].
func (s *Store) Objects(ctx context.Context, name string) (cluster.Objects, error) {
	o := &objects{store: s, shelf: shelf{name}}
	err := o.open(ctx)
	if errors.Is(err, cluster.ErrNotFound) {
		if err = s.makeStream(ctx, o.config()); err == nil {
			err = o.open(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open objects %q: %w", name, err)
	}
	return o, nil
}

type objects struct {
	store  *Store
	shelf  shelf
	stream jetstream.Stream // a name with methods
}

func (o *objects) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              o.shelf.stream(),
		Description:       "isobar: objects " + o.shelf.objects,
		Subjects:          []string{o.shelf.all()},
		MaxMsgsPerSubject: 1,
		Storage:           jetstream.FileStorage,
		Replicas:          o.store.opts.Replicas,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
	}
}

func (o *objects) open(ctx context.Context) error {
	stream, err := o.store.stream(ctx, o.shelf.stream())
	if err != nil {
		return err
	}
	o.stream = stream
	is := stream.CachedInfo().Config
	if is.MaxMsgsPerSubject != 1 || is.AllowDirect || is.AllowRollup || len(is.Subjects) != 1 || is.Subjects[0] != o.shelf.all() {
		return fmt.Errorf("stream %s was not made by isobar, or by another version of it: its configuration is another", is.Name)
	}
	return nil
}

func (o *objects) attempt(verb, name string, err error) error {
	return fmt.Errorf("%s object %q of %q: %w", verb, name, o.shelf.objects, err)
}

func (o *objects) publish(ctx context.Context, subject string, header nats.Header, data []byte, opts ...jetstream.PublishOpt) error {
	m := &nats.Msg{Subject: subject, Header: header, Data: data}
	opts = append(opts, jetstream.WithExpectStream(o.shelf.stream()), jetstream.WithRetryAttempts(0))
	_, err := o.store.publish(ctx, o.shelf.stream(), m, opts...)
	return err
}

func (o *objects) Put(ctx context.Context, name string, r io.Reader, sum string, meta map[string]string) (cluster.Object, error) {
	fail := func(err error) (cluster.Object, error) { return cluster.Object{}, o.attempt("put", name, err) }
	if name == "" {
		return fail(errors.New("an object has a name"))
	}
	ctx, cancel := context.WithTimeout(ctx, uploadMax)
	defer cancel()
	part := make([]byte, min(partBytes, o.store.messageBytesMax()))
	put := record{Name: name, Upload: o.store.who.tokens() + "." + rand.Text(), PartBytes: int64(len(part)), Meta: meta}
	hash := sha256.New()
	for parts := 0; ; parts++ {
		n, err := io.ReadFull(r, part)
		if n > 0 {
			hash.Write(part[:n])
			subject := o.shelf.data(put.Upload) + strconv.Itoa(parts)
			if err := o.publish(ctx, subject, valueHeader(), part[:n]); err != nil {
				return fail(err)
			}
			put.Size += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fail(fmt.Errorf("read the content: %w", err))
		}
	}
	put.SHA256 = hex.EncodeToString(hash.Sum(nil))
	if sum != "" && sum != put.SHA256 {
		return fail(fmt.Errorf("its SHA-256 is %s, not %s", put.SHA256, sum))
	}
	if err := o.write(ctx, put); err != nil {
		return fail(err)
	}
	return put.object(), nil
}

// write makes a record what there is of an object.
func (o *objects) write(ctx context.Context, r record, opts ...jetstream.PublishOpt) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if most := o.store.valueBytesMax(); len(data) > most {
		return fmt.Errorf("its description has %d bytes, more than the %d that it may have", len(data), most)
	}
	return o.publish(ctx, o.shelf.meta(r.Name), valueHeader(), data, opts...)
}

// last returns the last message of a subject.
func (o *objects) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	m, err := lastOf(ctx, o.store, o.stream, o.shelf.stream(), subject)
	if err == nil && m.Header.Get(headerValue) != valueFormat {
		err = errDamaged
	}
	return m, err
}

// find returns what there is of an object, and the revision of that.
func (o *objects) find(ctx context.Context, name string) (record, uint64, error) {
	m, err := o.last(ctx, o.shelf.meta(name))
	if err != nil {
		return record{}, 0, err
	}
	r, err := decodeRecord(name, m.Data)
	return r, m.Sequence, err
}

func (o *objects) Info(ctx context.Context, name string) (cluster.Object, error) {
	r, _, err := o.find(ctx, name)
	if err != nil {
		return cluster.Object{}, o.attempt("look up", name, err)
	}
	return r.object(), nil
}

func (o *objects) SetMeta(ctx context.Context, name string, meta map[string]string) error {
	for {
		r, revision, err := o.find(ctx, name)
		if err == nil {
			r.Meta = meta
			err = o.write(ctx, r, jetstream.WithExpectLastSequencePerSubject(revision))
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, cluster.ErrMoved):
			return o.attempt("describe", name, err)
		}
	}
}

// Delete leaves the parts to [Store.Sweep]: somebody may be reading them, and what the
// description says of where they are may be somebody else's parts.
func (o *objects) Delete(ctx context.Context, name string) error {
	_, _, err := o.find(ctx, name)
	if err == nil || errors.Is(err, errDamaged) {
		err = o.purge(ctx, o.shelf.meta(name))
	}
	if err != nil {
		return o.attempt("delete", name, err)
	}
	return nil
}

func (o *objects) purge(ctx context.Context, subject string) error {
	return o.store.do(ctx, "$JS.API.STREAM.PURGE."+o.shelf.stream(), o.shelf.stream(), func(ctx context.Context) error {
		return o.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
	})
}

// subjects returns what subjects there are that fit a filter.
func (o *objects) subjects(ctx context.Context, filter string) (map[string]uint64, error) {
	return subjectsOf(ctx, o.store, o.stream, o.shelf.stream(), filter)
}

// records returns what there is of all objects. Of one that is damaged that is its name: who
// may write here must not keep others from seeing the rest.
func (o *objects) records(ctx context.Context) ([]record, error) {
	subjects, err := o.subjects(ctx, o.shelf.metas()+"*")
	if err != nil {
		return nil, err
	}
	var list []record
	for subject := range subjects {
		name, err := unescape(strings.TrimPrefix(subject, o.shelf.metas()))
		if err != nil || name == "" {
			continue // no Put has written that
		}
		r, _, err := o.find(ctx, name)
		switch {
		case errors.Is(err, cluster.ErrNotFound): // it has just been deleted
		case errors.Is(err, errDamaged):
			list = append(list, record{Name: name})
		case err != nil:
			return nil, fmt.Errorf("%q: %w", name, err)
		default:
			list = append(list, r)
		}
	}
	return list, nil
}

func (o *objects) List(ctx context.Context) ([]cluster.Object, error) {
	records, err := o.records(ctx)
	if err != nil {
		return nil, fmt.Errorf("list objects %q: %w", o.shelf.objects, err)
	}
	var list []cluster.Object
	for _, r := range records {
		list = append(list, r.object())
	}
	return list, nil
}
