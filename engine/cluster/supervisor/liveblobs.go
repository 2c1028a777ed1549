package supervisor

import (
	"context"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// blobUse are the blobs of a running process.
type blobUse struct {
	place slots.Place
	blobs []cluster.Blob
}

// followBlobs tells keepBlobs which blobs are in use. The loop calls it.
func (s *Supervisor) followBlobs() {
	var uses []blobUse
	for _, slot := range s.table.Slots() {
		if a, ok := s.table.Assignment(slot.ID); ok && slot.Phase == slots.Running && len(a.Version.Blobs) > 0 {
			uses = append(uses, blobUse{place: slot.Place, blobs: a.Version.Blobs})
		}
	}
	select {
	case <-s.blobs: // what it has not seen is out of date
	default:
	}
	s.blobs <- uses
}

// keepBlobs looks for new versions of the blobs that are in use, until ctx ends, and has
// the processes made anew that want to be.
func (s *Supervisor) keepBlobs(ctx context.Context) {
	var uses []blobUse
	tick := time.NewTicker(s.cfg.BlobEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case uses = <-s.blobs:
		case <-tick.C:
			var again []slots.Place
			for _, use := range uses {
				if s.refreshBlobs(ctx, use) {
					again = append(again, use.place)
				}
			}
			if len(again) > 0 {
				s.post(slots.BlobsChanged{Places: again})
			}
		}
	}
}

// refreshBlobs links a process's blobs as their records say that they are now. It returns
// true if the process must be made anew since their content has changed.
func (s *Supervisor) refreshBlobs(ctx context.Context, use blobUse) (again bool) {
	for _, b := range use.blobs {
		path, err := s.cache.blob(ctx, use.place, b)
		changed, old := false, ""
		if err == nil {
			old, changed, err = link(s.folder(use.place), b, path)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a blob is not brought up to date", "place", use.place.String(), "blob", b.Key, "err", err)
		}
		if changed && err == nil {
			s.cache.drop(use.place, old)
			s.log.Info("a blob has a new version", "place", use.place.String(), "blob", b.Key)
			again = again || b.WorkerRestart
		}
	}
	return again
}
