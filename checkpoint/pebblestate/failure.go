package pebblestate

import (
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

// backgroundFailed is told of compactions that failed, as on a full disk. What they read
// is left as it was, so the state is as right as before and only slower to read, and
// Pebble tries again after a while, of its own accord. But rows that cannot be read are
// lost.
func (s *state) backgroundFailed(err error) {
	if pebble.IsCorruptionError(err) {
		s.fail(err)
	} else if s.ctx.Err() == nil {
		s.logger.Warn("background work of the state failed; it will be tried again", "error", err.Error())
	}
}

// fail makes every later call fail with err: what the local store holds is damaged,
// and is to be made anew from the checkpoint.
func (s *state) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = fmt.Errorf("its local store is damaged: %w", err)
		s.logger.Error("the local store of the state is damaged", "error", err.Error())
	}
}

// failed returns what the state was made to fail with.
func (s *state) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
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
