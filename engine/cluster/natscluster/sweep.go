package natscluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

const (
	// orphanAge is for how long parts that no object names are left alone: they may
	// belong to an upload that is under way, or be read by somebody.
	orphanAge = time.Hour
	// uploadMax is how long an upload may take, well below orphanAge.
	uploadMax = 30 * time.Minute
)

// orphans remembers since when parts were seen that no object names, by this process's
// own clock. The zero value is empty.
type orphans struct {
	mu    sync.Mutex
	since map[string]time.Time // by stream and upload
}

// due notes what is orphaned in a stream now, and returns what has been for long enough.
func (o *orphans) due(stream string, uploads []string, now time.Time) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[string]time.Time{}
	}
	seen := map[string]bool{}
	var due []string
	for _, u := range uploads {
		id := stream + " " + u
		seen[id] = true
		since, ok := o.since[id]
		if !ok {
			o.since[id] = now
		} else if now.Sub(since) >= orphanAge {
			due = append(due, u)
		}
	}
	maps.DeleteFunc(o.since, func(id string, _ time.Time) bool {
		return strings.HasPrefix(id, stream+" ") && !seen[id]
	})
	return due
}

// Sweep deletes the parts of binaries and blobs that no object has named for an hour:
// of content that was replaced, and of uploads that were broken off. It is for the
// leading nimbus to call now and then; nothing is deleted by the first call.
func (s *Store) Sweep(ctx context.Context) error { return s.sweep(ctx, time.Now()) }

func (s *Store) sweep(ctx context.Context, now time.Time) error {
	for _, name := range []string{cluster.ObjectsBinaries, cluster.ObjectsBlobs} {
		found, err := s.Objects(ctx, name)
		if err != nil {
			return err
		}
		o := found.(*objects)
		uploads, err := o.orphaned(ctx)
		if err != nil {
			return fmt.Errorf("sweep objects %q: %w", name, err)
		}
		for _, upload := range s.orphans.due(o.shelf.stream(), uploads, now) {
			if err := o.purge(ctx, o.shelf.data(upload)+">"); err != nil {
				return fmt.Errorf("sweep objects %q: %w", name, err)
			}
		}
	}
	return nil
}

// orphaned returns the uploads that no object names. What is uploaded is listed before
// what is named, so that what comes between is not taken for orphaned.
func (o *objects) orphaned(ctx context.Context) ([]string, error) {
	subjects, err := o.subjects(ctx, o.shelf.datas()+">")
	if err != nil {
		return nil, err
	}
	uploads := map[string]bool{}
	for subject := range subjects {
		upload, _, _ := cutLast(strings.TrimPrefix(subject, o.shelf.datas()))
		uploads[upload] = true
	}
	records, err := o.records(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		delete(uploads, r.Upload)
	}
	return slices.Sorted(maps.Keys(uploads)), nil
}
