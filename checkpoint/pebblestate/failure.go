package pebblestate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// restTime is for how long compactions rest after one has failed, unless a test
// chooses otherwise: Pebble tries again at once, for as long as the disk is full.
const restTime = time.Second

// backgroundFailed is told of compactions that failed. What they read is left as it
// was, so that the state is as right as before, and they are tried again; but rows
// that cannot be read make it useless.
func (s *state) backgroundFailed(err error) {
	if pebble.IsCorruptionError(err) {
		s.fail(err)
		return
	}
	s.mu.Lock()
	s.restUntil = time.Now().Add(s.restTime)
	s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.logger.Warn("background work of the state failed; it will be tried again", "error", err)
	}
}

// fail makes every later call fail with err: what the local store holds is damaged,
// and is to be made anew from the checkpoint.
func (s *state) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = fmt.Errorf("its local store is damaged: %w", err)
		s.logger.Error("the local store of the state is damaged", "error", err)
	}
}

// failed returns what the state was made to fail with.
func (s *state) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// rest waits until compactions may go on. It fails once the state closes, or is damaged
// and waits for that.
func (s *state) rest() error {
	s.mu.Lock()
	left := time.Until(s.restUntil)
	damaged := s.failure != nil
	s.mu.Unlock()
	if damaged {
		<-s.ctx.Done()
	}
	if left <= 0 {
		return context.Cause(s.ctx)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// pebbleLogger passes on what Pebble complains about.
type pebbleLogger struct{ logger *slog.Logger }

func (pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble does not know its own state any more. No failure of
// the disk leads here, see localFS.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	panic("pebble: " + fmt.Sprintf(format, args...))
}
