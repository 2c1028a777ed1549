package storage

import (
	"context"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/s3store"
)

// bucket is a Place on an S3 server.
type bucket struct{ *s3store.Place }

func (b bucket) Open(ctx context.Context, topology string, hook func(step string)) (checkpoint.Store, error) {
	if hook == nil {
		hook = func(string) {}
	}
	return b.Place.Open(ctx, topology, s3store.WithHook(hook))
}

func (b bucket) Look(_ context.Context, topology string) (checkpoint.Store, error) {
	return b.Place.Look(topology), nil
}
