package natscluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/isobar-io/isobar/engine/cluster"
)

const (
	// watchEvery is how often a watch looks for itself: a hint is lost when the leader of
	// a stream dies between storing a change and telling of it.
	watchEvery = 5 * time.Second
	// watchAgain is how long a watch waits after the store has failed it.
	watchAgain = 250 * time.Millisecond
)

// watch sends what changes in a bucket. It is a reader of the stream that knows how far
// it is; that something was published tells it only to read on.
type watch struct {
	*bucket
	prefix string
	out    chan cluster.Entry
	hints  <-chan struct{}
	every  time.Duration // how often it looks for itself

	known   map[string]uint64 // revisions of keys that exist for all that was sent
	cursor  uint64            // the last revision that was read
	created time.Time         // of the stream that the cursor is of
	gone    int               // how often the stream was not there since it was, or since an outage
}

// Watch implements cluster.Bucket.
func (b *bucket) Watch(ctx context.Context, prefix string) (<-chan cluster.Entry, error) {
	fail := func(err error) (<-chan cluster.Entry, error) {
		return nil, fmt.Errorf("watch %q of bucket %q: %w", prefix, b.place.bucket, err)
	}
	if _, err := b.store.stream(ctx, b.place.stream()); err != nil {
		return fail(err)
	}
	hints := make(chan struct{}, 1)
	subscription, err := b.store.subscribe(ctx, b.place.changes(), "", func(*nats.Msg) {
		select {
		case hints <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return fail(err)
	}
	w := &watch{bucket: b, prefix: prefix, out: make(chan cluster.Entry), hints: hints, every: watchEvery, known: map[string]uint64{}}
	go func() { // ends with ctx
		defer close(w.out)
		defer func() { _ = subscription.Unsubscribe() }() // fails where there is nothing to end
		w.run(ctx)
	}()
	return w.out, nil
}

// run sends everything, then changes, and begins anew after every outage.
func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		outage := w.store.life.current()
		err := w.sync(ctx)
		if err == nil {
			err = w.follow(ctx, outage)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		wait := time.NewTimer(watchAgain)
		if errors.Is(err, cluster.ErrNotFound) {
			wait.Reset(w.every)
		}
		select {
		case <-wait.C:
		case <-outage:
			w.gone = 0
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// look returns how far the stream is.
func (w *watch) look(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := w.store.stream(ctx, w.place.stream())
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// sync sends everything, and an entry without a key.
func (w *watch) sync(ctx context.Context) error {
	// The order matters: a key that comes between these two is found by the first change
	// after the cursor, and by the list as well.
	about, err := w.look(ctx)
	var list, damaged []cluster.Entry
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		// Believed when it is said twice: all would be taken for deleted.
		if w.gone++; w.gone != 2 {
			return err
		}
		about = &jetstream.StreamInfo{}
	case err != nil:
		return err
	default:
		w.gone = 0
		if list, damaged, err = w.read(ctx, w.prefix); err != nil {
			return err
		}
	}
	w.cursor, w.created = about.State.LastSeq, about.Created
	w.report(damaged)
	there := map[string]uint64{}
	for _, e := range list {
		there[e.Key] = e.Revision
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if _, ok := there[key]; !ok && !slices.ContainsFunc(damaged, func(e cluster.Entry) bool { return e.Key == key }) {
			list = append(list, cluster.Entry{Key: key, Revision: max(w.cursor, w.known[key])})
		}
	}
	for _, e := range append(list, cluster.Entry{}) {
		if err := w.send(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) report(damaged []cluster.Entry) {
	for _, e := range damaged {
		w.store.opts.Log.Error("a record of the coordination store is damaged; it is left as it was for those who watch it",
			"bucket", w.place.bucket, "key", e.Key)
	}
}

// follow sends changes until the outage, which is where it returns nil.
func (w *watch) follow(ctx context.Context, outage <-chan struct{}) error {
	look := time.NewTicker(w.every)
	defer look.Stop()
	again := time.NewTimer(watchAgain)
	defer again.Stop()
	for {
		again.Stop()
		err := w.catchUp(ctx)
		if errors.Is(err, cluster.ErrNotFound) {
			return err
		}
		if err != nil {
			again.Reset(watchAgain)
		}
		select {
		case <-outage:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-w.hints:
		case <-again.C:
		case <-look.C:
			about, err := w.look(ctx)
			switch {
			case errors.Is(err, cluster.ErrNotFound):
				return err
			case err == nil && (about.State.LastSeq < w.cursor || !about.Created.Equal(w.created)):
				return nil // another stream, of which nothing is known
			}
		}
	}
}

// catchUp sends what came after the cursor.
func (w *watch) catchUp(ctx context.Context) error {
	for {
		next := w.cursor + 1
		m, err := ask(ctx, w.store, messages(w.place.stream()), w.place.stream(), func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			m, err := w.stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(w.place.values()+">"))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil, nil
			}
			return m, err
		})
		if err != nil || m == nil {
			return err
		}
		e, _, err := w.entry(m)
		switch {
		case errors.Is(err, errDamaged):
			w.report([]cluster.Entry{e})
		case err != nil:
			return err
		case !strings.HasPrefix(e.Key, w.prefix), e.Revision <= w.known[e.Key]:
		case e.Value == nil && w.known[e.Key] == 0:
		default:
			if err := w.send(ctx, e); err != nil {
				return err
			}
		}
		w.cursor = m.Sequence
	}
}

func (w *watch) send(ctx context.Context, e cluster.Entry) error {
	select {
	case w.out <- e:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case e.Key == "":
	case e.Value == nil:
		delete(w.known, e.Key)
	default:
		w.known[e.Key] = e.Revision
	}
	return nil
}
