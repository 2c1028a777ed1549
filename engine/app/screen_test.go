package app

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/master"
)

func TestScreen(t *testing.T) {
	line := func(p engine.Progress) string { return fmt.Sprint("at ", p.Elapsed) }
	for _, c := range []struct {
		name string
		tty  bool
		want string
	}{
		{"terminal", true, "at 1s\r\x1b[Kat 2s\r\x1b[Klog\nat 2s\r\x1b[Kat 12s\r\x1b[Kat 13s\nlog\n"},
		{"file", false, "log\nat 12s\nat 13s\nlog\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var buf bytes.Buffer
			s := newScreen(&buf, line)
			s.tty = c.tty
			s.progress(engine.Progress{Elapsed: time.Second})
			s.progress(engine.Progress{Elapsed: 2 * time.Second})
			fmt.Fprintln(s, "log")
			s.progress(engine.Progress{Elapsed: 12 * time.Second})
			s.progress(engine.Progress{Elapsed: 13 * time.Second, Final: true})
			fmt.Fprintln(s, "log")
			if buf.String() != c.want {
				t.Errorf("shown as %q, want %q", buf.String(), c.want)
			}
		})
	}
}

func TestDefaultLine(t *testing.T) {
	got := defaultLine(engine.Progress{
		Elapsed:    1234 * time.Millisecond,
		Components: []master.ComponentProgress{{ID: "a", Emitted: 1234567}, {ID: "b", Emitted: 1, Executed: 999}},
		Committed:  4,
		Restarts:   2,
	})
	if want := "a 1,234,567, b 999 in 1.2s, 4 checkpoints, 2 restarts"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if Count(0) != "0" || Count(1000) != "1,000" {
		t.Errorf("%s %s", Count(0), Count(1000))
	}
}
