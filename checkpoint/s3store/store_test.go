package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/checkpointtest"
	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
)

const bucket = "isobar"

// newPlace returns a place of test credentials on a network.
func newPlace(t testing.TB, o s3store.Options) *s3store.Place {
	t.Helper()
	s3test.SetCredentials(t)
	if o.Bucket == "" {
		o.Bucket = bucket
	}
	o.Prefix, o.PathStyle = "some/prefix", true
	if o.Endpoint == "" {
		o.Endpoint = "http://s3.test"
	}
	p, err := s3store.NewPlace(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// open opens a store that is expected to open.
func open(t testing.TB, p *s3store.Place, folder string, opts ...s3store.Option) *s3store.Store {
	t.Helper()
	s, err := p.Open(t.Context(), folder, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inMemory returns a place on a server in memory, behind a network.
func inMemory(t testing.TB, network *s3test.Network, patience time.Duration) *s3store.Place {
	t.Helper()
	network.Base = s3test.Direct(s3test.NewServer(bucket))
	return newPlace(t, s3store.Options{Transport: network, Patience: patience})
}

// eachFolder makes every place of the suite a folder of one place.
func eachFolder(p *s3store.Place, as func(*s3store.Store) checkpoint.Store) func(t *testing.T) func() checkpoint.Store {
	var folders atomic.Int64
	return func(t *testing.T) func() checkpoint.Store {
		folder := fmt.Sprint("topology-", folders.Add(1))
		return func() checkpoint.Store { return as(open(t, p, folder)) }
	}
}

func plain(s *s3store.Store) checkpoint.Store { return s }

func TestStoreInMemory(t *testing.T) {
	checkpointtest.RunStore(t, eachFolder(inMemory(t, &s3test.Network{}, 0), plain))
}

func TestStoreOnServer(t *testing.T) {
	endpoint := s3test.Start(t, bucket)
	checkpointtest.RunStore(t, eachFolder(newPlace(t, s3store.Options{Endpoint: endpoint}), plain))
}

// faults are those that a store must hide. Replies that were altered on the way are for
// those who read to notice, who know the checksum.
var faults = []s3test.Fault{
	s3test.Unavailable, s3test.TooMany, s3test.InConflict, s3test.ServerError, s3test.Reset,
	s3test.LostReply, s3test.Late, s3test.CutRequest, s3test.CutReply, s3test.NotFound, s3test.AlterRequest,
}

func TestStoreInMemoryWithFaults(t *testing.T) {
	happened := map[s3test.Fault]int{}
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			n := &s3test.Network{Pick: s3test.Random(seed, 0.2, faults...)}
			checkpointtest.RunStore(t, eachFolder(inMemory(t, n, 0), persistently))
			for f, times := range n.Counts() {
				happened[f] += times
			}
		})
	}
	checkAllHappened(t, happened)
}

func TestStoreOnServerWithFaults(t *testing.T) {
	n := &s3test.Network{Base: http.DefaultTransport, Pick: s3test.Random(1, 0.2, faults...)}
	p := newPlace(t, s3store.Options{Endpoint: s3test.Start(t, bucket), Transport: n})
	checkpointtest.RunStore(t, eachFolder(p, persistently))
	checkAllHappened(t, n.Counts())
}

func checkAllHappened(t *testing.T, counts map[s3test.Fault]int) {
	t.Helper()
	for _, f := range faults {
		if counts[f] == 0 {
			t.Errorf("fault %d never happened: %v", f, counts)
		}
	}
}

// persistent is a store that does not give up soon, as the engine does not: when many ask
// for the same object, one of them may be unlucky several times in a row.
type persistent struct{ *s3store.Store }

func persistently(s *s3store.Store) checkpoint.Store { return persistent{s} }

func again(call func() error) (err error) {
	for range 5 {
		err = call()
		for _, certain := range []error{nil, checkpoint.ErrNotFound, checkpoint.ErrExists, checkpoint.ErrDamaged, context.Canceled} {
			if errors.Is(err, certain) {
				return err
			}
		}
	}
	return err
}

func (p persistent) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	return again(func() error { return p.Store.Put(ctx, name, body, size, crc) })
}

func (p persistent) Delete(ctx context.Context, name string) error {
	return again(func() error { return p.Store.Delete(ctx, name) })
}

func (p persistent) ReadHead(ctx context.Context) (data []byte, v checkpoint.Version, err error) {
	err = again(func() error {
		data, v, err = p.Store.ReadHead(ctx)
		return err
	})
	return data, v, err
}

// SwapHead reads the head, whose bytes never repeat, after an outcome that is not known.
func (p persistent) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	for {
		v, err := p.Store.SwapHead(ctx, old, data)
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		now, v, readErr := p.ReadHead(ctx)
		switch {
		case readErr != nil && !errors.Is(readErr, checkpoint.ErrNotFound):
			return "", readErr
		case readErr == nil && bytes.Equal(now, data):
			return v, nil
		case v != old || errors.Is(err, checkpoint.ErrHeadMoved):
			return "", checkpoint.ErrHeadMoved
		}
	}
}
