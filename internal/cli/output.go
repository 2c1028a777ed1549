package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printer writes lines, clipped to the columns, and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, clip(fmt.Sprintf(format, args...), columns))
	}
}

// table prints rows of aligned columns, each clipped to the width.
type table struct {
	printer
	text bytes.Buffer
	tabs *tabwriter.Writer
}

func newTable(w io.Writer) *table {
	t := &table{printer: printer{w: w}}
	t.tabs = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.tabs, strings.Join(cells, "\t")) }

func (t *table) end() error {
	if err := t.tabs.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(t.text.String()) {
		t.line("%s", strings.TrimRight(line, " \n"))
	}
	return t.err
}

// moment formats a time in UTC.
func moment(unixMilli int64) string {
	return time.UnixMilli(unixMilli).UTC().Format(time.DateTime)
}

// clip shortens a text to at most n characters, of which the last says so.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// handleColumns is how much of a handle is shown: it may hold all that a batch has put out.
const handleColumns = 60

// handleOf shows the size of a transaction's handle and, if it is text, how it begins.
func handleOf(b []byte) string {
	size := bytesOf(int64(len(b)))
	text := bytes.Join(bytes.Fields(b), []byte(" ")) // of JSON, lines and tabs
	if len(text) == 0 || !isText(text) {
		return size
	}
	return size + ": " + clip(string(text), handleColumns+1)
}

// isText reports whether bytes are text that can be printed.
func isText(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
}

// printable shows bytes as text where they are that, else in hexadecimal.
func printable(b []byte) string {
	if len(b) == 0 {
		return "empty"
	}
	if isText(b) {
		return string(b)
	}
	return fmt.Sprintf("%d bytes %x", len(b), b[:min(len(b), columns)])
}
