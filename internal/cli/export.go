package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/tuple"
)

// exported is an entry of a state, as JSON lines have it. Which members there are depends
// on the kind of state.
type exported struct {
	Component string  `json:"component"`
	State     string  `json:"state"`
	Key       []any   `json:"key"`
	MapKey    any     `json:"mapKey,omitempty"`
	Index     *uint64 `json:"index,omitempty"` // of a list
	At        *int64  `json:"at,omitempty"`    // of a timer, in milliseconds since 1970
	Timer     *string `json:"timer,omitempty"` // its name
	Value     any     `json:"value"`
	Expires   int64   `json:"expires,omitempty"` // in milliseconds since 1970

	key string // as people read it
}

// export returns an entry, which must not be changed as long as it is used.
func export(s *inspect.State, e *inspect.Entry) (*exported, error) {
	key, err := inspect.JSONKey(e.Key)
	if err != nil {
		return nil, err
	}
	x := &exported{Component: s.Component, State: s.Meta.Name, Key: key, MapKey: s.MapKey(e), Value: s.Value(e),
		Expires: e.Expires, key: tuple.FormatKey(e.Key)}
	switch s.Kind() {
	case "list":
		x.Index = &e.Index
	case "timer":
		x.At, x.Timer = &e.At, &e.Timer
	}
	return x, nil
}

// clone returns a copy that shares nothing with the entry.
func (x *exported) clone() *exported {
	c := *x
	c.MapKey, c.Value = lasting(x.MapKey), lasting(x.Value)
	return &c
}

func lasting(v any) any {
	switch v := v.(type) {
	case inspect.Hex:
		return inspect.Hex(bytes.Clone(v))
	case json.RawMessage:
		return json.RawMessage(bytes.Clone(v))
	}
	return v
}

// value shows the value, and when it expires.
func (x *exported) value() string {
	text := text(x.Value)
	if x.Expires != 0 {
		text += ", expires " + moment(x.Expires)
	}
	return text
}

// line shows the entry on a line.
func (x *exported) line() string {
	switch {
	case x.At != nil:
		return fmt.Sprintf("%s: timer %q at %s", x.key, *x.Timer, time.UnixMilli(*x.At).UTC().Format("2006-01-02 15:04:05.000"))
	case x.Index != nil:
		return fmt.Sprintf("%s[%d]: %s", x.key, *x.Index, x.value())
	case x.MapKey != nil:
		return fmt.Sprintf("%s[%s]: %s", x.key, text(x.MapKey), x.value())
	}
	return x.key + ": " + x.value()
}

// text shows a value on one line.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return printable([]byte(v))
	case inspect.Hex:
		return printable(v)
	case json.RawMessage:
		var compact bytes.Buffer
		if json.Compact(&compact, v) == nil {
			return compact.String()
		}
		return string(v)
	}
	return fmt.Sprint(v)
}

// lines writes JSON documents, one a line.
type lines struct {
	w   *bufio.Writer
	enc *json.Encoder
}

func newLines(w io.Writer) *lines {
	l := &lines{w: bufio.NewWriterSize(w, 64<<10)}
	l.enc = json.NewEncoder(l.w)
	l.enc.SetEscapeHTML(false)
	return l
}

func newExport() *cobra.Command {
	var l location
	var expired, asJSON bool
	cmd := &cobra.Command{
		Use:   "export STORE [TOPOLOGY] [CHECKPOINT]",
		Short: "Print all keyed state of a checkpoint as JSON lines.",
		Long: "Print all keyed state of a checkpoint, without CHECKPOINT the current one of each region, as\n" +
			"JSON lines: component, state, key and value." + storeHelp,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, topology, rest, err := storeArgs(args, 1)
			if err != nil {
				return err
			}
			return l.with(cmd, store, topology, func(a *archive) error {
				chosen, err := a.choose(optional(rest))
				if err != nil {
					return err
				}
				for _, e := range chosen {
					if err := a.export(cmd, e, expired); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&expired, "expired", false, "also what had expired when the checkpoint was taken")
	cmd.Flags().BoolVar(&asJSON, "json", true, "print JSON lines, which it always does")
	l.addFlags(cmd)
	return cmd
}

func (a *archive) export(cmd *cobra.Command, e entry, expired bool) error {
	m, err := a.manifest(cmd.Context(), e.ref)
	if err != nil {
		return err
	}
	c, err := inspect.New(a.store, m)
	if err != nil {
		return err
	}
	states, err := c.States()
	if err != nil {
		return err
	}
	out := newLines(cmd.OutOrStdout())
	for _, s := range states {
		s.Expired = expired
		if err := exportState(cmd, s, inspect.Prefix{}, 0, out); err != nil {
			return errors.Join(err, out.w.Flush())
		}
	}
	return out.w.Flush()
}

// errEnough ends a scan that has found as much as was asked for.
var errEnough = errors.New("enough")

// exportState writes the entries of a state, at most limit if that is above 0.
func exportState(cmd *cobra.Command, s *inspect.State, prefix inspect.Prefix, limit int, out *lines) error {
	err := s.Scan(cmd.Context(), prefix, limited(limit, func(e *inspect.Entry) error {
		x, err := export(s, e)
		if err != nil {
			return err
		}
		return out.enc.Encode(x)
	}))
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// limited returns fn, which ends with errEnough after the last call that is allowed.
func limited(limit int, fn func(e *inspect.Entry) error) func(e *inspect.Entry) error {
	n := 0
	return func(e *inspect.Entry) error {
		err := fn(e)
		if n++; err == nil && n == limit {
			err = errEnough
		}
		return err
	}
}

// parseText returns the values of a key as the flags say that it is written.
func parseText(key string, asHex, asJSON bool) ([]tuple.Value, error) {
	switch {
	case asHex && asJSON:
		return nil, usageError{errors.New("--key-hex and --key-json exclude each other")}
	case asHex:
		vals, err := inspect.ParseKey(`[{"hex":"` + strings.ToLower(key) + `"}]`)
		if err != nil {
			err = usageError{fmt.Errorf("key %q: must be hexadecimal digits", key)}
		}
		return vals, err
	case asJSON:
		vals, err := inspect.ParseKey(key)
		if err != nil {
			err = usageError{err}
		}
		return vals, err
	}
	return []tuple.Value{tuple.String(key)}, nil
}
