package process

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Levels are the log levels of a process, by component, "" being all the rest. They may
// be set for a time.
type Levels struct {
	base slog.Level
	now  atomic.Pointer[map[string]setLevel]
}

type setLevel struct {
	level slog.Level
	until time.Time // zero: for good
}

// NewLevels returns Levels that are base.
func NewLevels(base slog.Level) *Levels { return &Levels{base: base} }

// Set replaces what was set. Levels that are none are left out; nimbus has refused them.
func (l *Levels) Set(levels map[string]cluster.Level) {
	now := map[string]setLevel{}
	for name, v := range levels {
		var level slog.Level
		if level.UnmarshalText([]byte(strings.ToUpper(v.Level))) == nil {
			now[name] = setLevel{level, v.Until}
		}
	}
	l.now.Store(&now)
}

// of returns the level of a component.
func (l *Levels) of(component string) slog.Level {
	now := l.now.Load()
	if now == nil {
		return l.base
	}
	for _, name := range []string{component, ""} {
		if s, ok := (*now)[name]; ok && (s.until.IsZero() || time.Now().Before(s.until)) {
			return s.level
		}
	}
	return l.base
}

// Handler returns a handler that lets through to h what the levels say.
func (l *Levels) Handler(h slog.Handler) slog.Handler { return &leveled{h, l, ""} }

type leveled struct {
	slog.Handler
	levels    *Levels
	component string
}

func (h *leveled) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.of(h.component)
}

func (h *leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	component := h.component
	for _, a := range attrs {
		if a.Key == "component" {
			component = a.Value.String()
		}
	}
	return &leveled{h.Handler.WithAttrs(attrs), h.levels, component}
}

func (h *leveled) WithGroup(name string) slog.Handler {
	return &leveled{h.Handler.WithGroup(name), h.levels, h.component}
}
