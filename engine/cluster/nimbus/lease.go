package nimbus

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// errDeposed: the lease is over, so this nimbus may write nothing more.
var errDeposed = errors.New("this nimbus leads no longer: ask again")

// lease is the right to lead. All methods may be called from any goroutine; keep runs on one
// of its own.
type lease struct {
	bucket cluster.Bucket
	holder string
	length time.Duration

	mu       sync.Mutex
	revision uint64
	beat     uint64    // of the last attempt
	first    uint64    // of this holder: those below are another's
	end      time.Time // by this machine's monotonic clock
	silent   bool      // the store has not answered since
}

// firstBeat is different for every process, so that none takes another's lease for its own.
func firstBeat() uint64 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // it never fails
	}
	return binary.BigEndian.Uint64(b[:]) >> 12 // exact in every JSON reader
}

// acquire waits for the lease. It fails only when ctx ends.
func acquire(ctx context.Context, store cluster.Store, holder string, length time.Duration) (*lease, error) {
	l := &lease{holder: holder, length: length, first: firstBeat()}
	l.beat = l.first
	var seen uint64 // revision of another's lease
	var since time.Time
	again := time.NewTimer(length / 3)
	defer again.Stop()
	for {
		now := time.Now()
		held, err := l.look(ctx, store)
		switch {
		case err != nil: // whoever leads can renew as little
		case held == nil:
			if l.attempt(ctx, now, l.bucket.Create) == nil {
				return l, nil
			}
		case held.Revision != seen:
			// From after the read on: what was read may have been written in the middle of it.
			seen, since = held.Revision, time.Now()
		case now.Sub(since) >= length:
			if l.attempt(ctx, now, l.over(held.Revision)) == nil {
				return l, nil
			}
		}
		again.Reset(length / 3)
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look returns the lease as the store has it, nil if there is none.
func (l *lease) look(ctx context.Context, store cluster.Store) (*cluster.Entry, error) {
	ctx, done := context.WithTimeout(ctx, l.length/3)
	defer done()
	var err error
	if l.bucket, err = store.Bucket(ctx, cluster.BucketNimbus, true); err != nil {
		return nil, err
	}
	entries, err := l.bucket.List(ctx) // which has it even if it is damaged: somebody must lead
	i := slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Key == cluster.KeyLeader })
	if err != nil || i < 0 {
		return nil, err
	}
	return &entries[i], nil
}

type writing func(ctx context.Context, key string, value []byte) (uint64, error)

func (l *lease) over(revision uint64) writing {
	return func(ctx context.Context, key string, value []byte) (uint64, error) {
		return l.bucket.Update(ctx, key, value, revision)
	}
}

// attempt writes the lease anew. It counts from before that, so that it ends here before
// others, who see the write later, may think so; the tenth is for clocks that differ in speed.
func (l *lease) attempt(ctx context.Context, sent time.Time, write writing) error {
	l.mu.Lock()
	l.beat++
	text, err := json.Marshal(cluster.Lease{Holder: l.holder, Beat: l.beat})
	l.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, l.length/3)
	defer done()
	revision, err := write(ctx, cluster.KeyLeader, text)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent = err != nil; l.silent {
		return err
	}
	l.revision, l.end = revision, sent.Add(l.length-l.length/10)
	return nil
}

// keep renews the lease until ctx ends or it is lost, and says why. Renewals that had no
// answer are repeated soon.
func (l *lease) keep(ctx context.Context) error {
	pause := l.length / 3
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		again.Reset(min(pause, time.Until(l.ends())))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
		if !l.valid() {
			return fmt.Errorf("the store has not answered for %v: %w", l.length, errDeposed)
		}
		pause = l.length / 15
		now := time.Now()
		err := l.attempt(ctx, now, l.over(l.current()))
		switch {
		case err == nil:
			pause = l.length / 3
		case errors.Is(err, cluster.ErrMoved), errors.Is(err, cluster.ErrNotFound):
			if !l.recognise(ctx) {
				return fmt.Errorf("another nimbus has taken the lease, or it was deleted: %w", errDeposed)
			}
		}
	}
}

// recognise looks whether the lease in the store is one that was written here without the
// answer having come, and goes on from it. It is false if it is another's.
func (l *lease) recognise(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, l.length/3)
	defer done()
	e, err := l.bucket.Get(ctx, cluster.KeyLeader)
	if err != nil {
		return !errors.Is(err, cluster.ErrNotFound)
	}
	var held cluster.Lease
	if json.Unmarshal(e.Value, &held) != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held.Holder != l.holder || held.Beat <= l.first || held.Beat > l.beat {
		return false
	}
	l.revision = e.Revision
	return true
}

// release gives the lease up, so that another need not wait for its end.
func (l *lease) release(ctx context.Context) error {
	if !l.valid() {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, l.length/3)
	defer done()
	return l.bucket.Delete(ctx, cluster.KeyLeader, l.current())
}

func (l *lease) current() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

func (l *lease) ends() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// valid reports whether this nimbus may write.
func (l *lease) valid() bool { return time.Now().Before(l.ends()) }

// answered reports whether the store has answered the last renewal.
func (l *lease) answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.silent
}

// fence implements fence.
func (l *lease) fence(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !l.valid() {
		return nil, nil, errDeposed
	}
	ctx, done := context.WithDeadline(ctx, l.ends())
	return ctx, done, nil
}
