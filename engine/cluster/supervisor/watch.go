package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// watchAgain is the pause before a watch that cannot be begun is tried again.
const watchAgain = time.Second

// goneAgain is how soon what exists is listed once more after something was deleted. The
// order to end it may have been missed, and one listing alone is not believed.
const goneAgain = time.Second

// watchAssignments passes on what is assigned, until ctx ends. What exists is listed, too,
// after each outage and each ResyncEvery: a message that was lost costs no more than that.
func (s *Supervisor) watchAssignments(ctx context.Context) {
	tick := time.NewTicker(s.cfg.ResyncEvery)
	defer tick.Stop()
	gone := time.NewTimer(0)
	defer gone.Stop()
	gone.Stop()
	entries := s.watch(ctx, cluster.BucketAssignments, "")
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.listAssignments(ctx)
		case <-gone.C:
			s.listAssignments(ctx)
		case e, ok := <-entries:
			switch {
			case !ok:
				return
			case e.Key == "":
				s.listAssignments(ctx)
			case e.Key == cluster.KeyMark:
			case e.Value == nil:
				s.post(slots.Removed{ID: e.Key})
				s.listAssignments(ctx)
				gone.Reset(goneAgain)
			default:
				if a, ok := s.assignment(e); ok {
					s.post(slots.Assigned{Assignment: a})
				}
			}
		}
	}
}

// watch watches a bucket, which it waits for. Nothing comes any more when ctx ends.
func (s *Supervisor) watch(ctx context.Context, bucket, prefix string) <-chan cluster.Entry {
	out := make(chan cluster.Entry)
	s.running.Go(func() {
		defer close(out)
		var in <-chan cluster.Entry
		for in == nil {
			b, err := s.cfg.Store.Bucket(ctx, bucket, false)
			if err == nil {
				in, err = b.Watch(ctx, prefix)
			}
			if err != nil && !pause(ctx, watchAgain, nil) {
				return
			}
		}
		for e := range in {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	return out
}

// assignment decodes an assignment. What makes no sense is no order.
func (s *Supervisor) assignment(e cluster.Entry) (a cluster.Assignment, ok bool) {
	err := json.Unmarshal(e.Value, &a)
	if _, isID := cluster.NameOfID(a.ID); err == nil && (!isID || a.ID != e.Key) {
		err = fmt.Errorf("it names topology %q", a.ID)
	}
	if err != nil {
		s.log.Error("an assignment cannot be read, and is ignored", "key", e.Key, "err", err)
		return a, false
	}
	return a, true
}

// listAssignments tells of all assignments that there are, if they can be had.
func (s *Supervisor) listAssignments(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ResyncEvery)
	defer cancel()
	b, err := s.cfg.Store.Bucket(ctx, cluster.BucketAssignments, false)
	var entries []cluster.Entry
	if err == nil {
		entries, err = b.List(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("assignments cannot be listed; processes go on", "err", err)
		}
		return
	}
	var ev slots.Listed
	for _, e := range entries {
		if e.Key == cluster.KeyMark {
			ev.Mark = string(e.Value)
		} else if a, ok := s.assignment(e); ok {
			ev.Assignments = append(ev.Assignments, a)
		} else {
			ev.Unread = append(ev.Unread, e.Key)
		}
	}
	s.post(ev)
}

// watchMaster passes on where a topology's master is, until ctx ends.
func (s *Supervisor) watchMaster(ctx context.Context, id string) {
	for e := range s.watch(ctx, cluster.TopologyBucket(id), cluster.KeyMaster) {
		if e.Key == cluster.KeyMaster && e.Value != nil {
			s.masterSeen(id, e)
		}
	}
}

// masterSeen passes on a topology master's record.
func (s *Supervisor) masterSeen(id string, e cluster.Entry) {
	var r cluster.MasterRecord
	if err := json.Unmarshal(e.Value, &r); err != nil {
		s.log.Error("the record of a topology master cannot be read, and is ignored", "topology", id, "err", err)
		return
	}
	s.post(slots.MasterSeen{ID: id, Record: r})
}

// followTopologies has the masters of all topologies that are here watched, and of no
// others. The loop calls it.
func (s *Supervisor) followTopologies() {
	wanted := map[string]bool{}
	for _, id := range s.table.Topologies() {
		wanted[id] = true
		if s.watched[id] == nil {
			ctx, cancel := context.WithCancel(s.work)
			s.watched[id] = cancel
			s.running.Go(func() { s.watchMaster(ctx, id) })
		}
	}
	for id, cancel := range s.watched {
		if !wanted[id] {
			cancel()
			delete(s.watched, id)
		}
	}
}
