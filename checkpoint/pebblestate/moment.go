package pebblestate

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/isobar-io/isobar/checkpoint"
)

// moment is the state as of one batch. It stays until all who hold it have let it go:
// the list of views, the newest moment, a reader, the writer of a base.
type moment struct {
	batch    checkpoint.BatchID
	snapshot *pebble.Snapshot
	holders  int // guarded by the state's mu
}

// publish makes the state as it is now a view and what the task reads. Of the committer.
func (s *state) publish() {
	m := &moment{batch: s.applied, snapshot: s.db.NewSnapshot(), holders: 2}
	s.views[s.applied] = m
	s.mu.Lock()
	before := s.last
	s.last = m
	s.mu.Unlock()
	if before != nil {
		s.letGo(before)
	}
}

// newest returns the newest moment, held for a reader that must let it go.
func (s *state) newest() (*moment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("it is closed")
	}
	if s.failure != nil {
		return nil, s.failure
	}
	s.last.holders++
	s.reads.Add(1)
	return s.last, nil
}

// read lets a moment go after a reader is done with it.
func (s *state) read(m *moment) {
	s.letGo(m)
	s.reads.Done()
}

// hold takes a moment that somebody else holds for one more.
func (s *state) hold(m *moment) *moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.holders++
	return m
}

// letGo closes a moment that nobody holds any more.
func (s *state) letGo(m *moment) {
	s.mu.Lock()
	m.holders--
	unused := m.holders == 0
	s.mu.Unlock()
	if !unused {
		return
	}
	if err := m.snapshot.Close(); err != nil {
		s.logger.Error("close a snapshot of the state", "batch", m.batch, "error", err)
	}
}
