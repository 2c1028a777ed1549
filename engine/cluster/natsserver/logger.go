package natsserver

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// logger passes on what the server says. What it notices in passing is for debugging.
type logger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *logger) say(level func(string, ...any), format string, v []any) {
	level("NATS server: " + fmt.Sprintf(format, v...))
}

func (l *logger) Noticef(format string, v ...any) { l.say(l.log.Debug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.say(l.log.Warn, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.say(l.log.Error, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.say(l.log.Debug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.say(l.log.Debug, format, v) }

// Fatalf notes why the server cannot run; it does not end the process.
func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.Store(&text)
	l.say(l.log.Error, format, v)
}
