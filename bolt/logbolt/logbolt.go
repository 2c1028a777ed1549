// Package logbolt holds a bolt that logs the tuples it gets, for looking at a stream.
package logbolt

import (
	"log/slog"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// perSecond is the rate of the zero Options.
const perSecond = 10

// Options change what a [Bolt] logs.
type Options struct {
	// PerSecond is how many tuples a second each task logs at most; 0 means 10, and
	// less than 0 all of them.
	PerSecond int
	// Level is that of the messages; the zero value is slog.LevelInfo.
	Level slog.Level
	// Message is what they say; the default is "tuple".
	Message string
}

// Bolt logs tuples. See [New].
type Bolt struct {
	opts Options
	log  *slog.Logger
	now  func() time.Time

	second  time.Time // when the current second began
	logged  int       // in it
	skipped uint64    // since the last message
}

// New returns a bolt that writes the tuples it gets to the logger of its task: the
// stream, its fields by name, and, if the rate was too high since the last message,
// how many tuples were left out as "skipped". It emits nothing. A tuple that comes
// again after a rollback is logged again.
func New(o Options) *Bolt {
	if o.PerSecond == 0 {
		o.PerSecond = perSecond
	}
	if o.Message == "" {
		o.Message = "tuple"
	}
	return &Bolt{opts: o, now: time.Now}
}

// Open takes the logger.
func (b *Bolt) Open(ctx *txn.Context) error {
	b.log = ctx.Logger
	return nil
}

// Execute logs the tuple, unless that would be too many.
func (b *Bolt) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if b.due(1) == 0 {
		b.skipped++
		return nil
	}
	b.write(t)
	return nil
}

// ExecuteBatch is Execute for each tuple of f.
func (b *Bolt) ExecuteBatch(f *tuple.Frame, _ *txn.Collector) error {
	n := b.due(f.Len())
	var t tuple.Tuple
	for i := range n {
		t.At(f, i)
		b.write(&t)
	}
	b.skipped += uint64(f.Len() - n)
	return nil
}

// due returns how many of n more tuples may be logged now, and counts them.
func (b *Bolt) due(n int) int {
	if b.opts.PerSecond < 0 {
		return n
	}
	if now := b.now(); now.Sub(b.second) >= time.Second || now.Before(b.second) {
		b.second, b.logged = now, 0
	}
	n = min(n, b.opts.PerSecond-b.logged)
	b.logged += n
	return n
}

func (b *Bolt) write(t *tuple.Tuple) {
	s := t.Stream()
	fields := make([]slog.Attr, t.Len())
	for i, v := range t.Values() {
		fields[i] = slog.Any(s.Fields[i], v.Any())
		if text, ok := v.Text(); ok { // bytes are read as text, and not kept
			fields[i] = slog.String(s.Fields[i], string([]byte(text)))
		}
	}
	attrs := []slog.Attr{slog.String("from", s.Component), slog.String("stream", s.ID), {Key: "fields", Value: slog.GroupValue(fields...)}}
	if b.skipped > 0 {
		attrs = append(attrs, slog.Uint64("skipped", b.skipped))
		b.skipped = 0
	}
	b.log.LogAttrs(nil, b.opts.Level, b.opts.Message, attrs...) //nolint:staticcheck // no call is being handled
}
