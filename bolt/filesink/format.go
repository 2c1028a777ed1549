package filesink

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/isobar-io/isobar/tuple"
)

// Format is how a tuple is written to a file: [Lines], [JSON] or [CSV].
type Format struct {
	suffix string // of file names
	header func(dst []byte, s *tuple.Stream) []byte
	append func(dst []byte, t *tuple.Tuple) ([]byte, error)
}

// Lines writes a tuple as a line: its fields in the form that [NewLatest] describes,
// with a tab between them. Files are named .txt.
func Lines() Format {
	return Format{suffix: ".txt", append: func(dst []byte, t *tuple.Tuple) ([]byte, error) {
		for i, v := range t.Values() {
			if i > 0 {
				dst = append(dst, '\t')
			}
			dst = appendField(dst, v)
		}
		return append(dst, '\n'), nil
	}}
}

// JSON writes a tuple as an object on a line of its own, with the names of the
// stream's fields. Strings and bytes are both written as strings, in which what is no
// UTF-8 becomes U+FFFD; times are RFC 3339; floats that JSON has no number for are
// null; objects are written by encoding/json. Files are named .jsonl.
func JSON() Format {
	return Format{suffix: ".jsonl", append: func(dst []byte, t *tuple.Tuple) ([]byte, error) {
		var err error
		for i, v := range t.Values() {
			sep := byte(',')
			if i == 0 {
				sep = '{'
			}
			dst = append(appendJSONText(append(dst, sep), t.Stream().Fields[i]), ':')
			if dst, err = appendJSON(dst, v); err != nil {
				return dst, fmt.Errorf("field %q of %s: %w", t.Stream().Fields[i], t, err)
			}
		}
		if t.Len() == 0 {
			dst = append(dst, '{')
		}
		return append(dst, '}', '\n'), nil
	}}
}

func appendJSON(dst []byte, v tuple.Value) ([]byte, error) {
	if text, ok := v.Text(); ok {
		return appendJSONText(dst, text), nil
	}
	switch v.Kind() {
	case tuple.KindNil:
		return append(dst, "null"...), nil
	case tuple.KindFloat64:
		if f := v.Float64(); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(dst, "null"...), nil
		}
		return appendPlain(dst, v), nil
	case tuple.KindTime:
		return append(v.Time().AppendFormat(append(dst, '"'), time.RFC3339Nano), '"'), nil
	case tuple.KindAny:
		b, err := json.Marshal(v.Any())
		return append(dst, b...), err
	default:
		return appendPlain(dst, v), nil
	}
}

func appendJSONText(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r) // RuneError if it is not valid
		}
		text = text[n:]
	}
	return append(dst, '"')
}

// CSV writes a tuple as a record of RFC 4180, whose lines end in CR LF. Numbers,
// booleans, times and nil are written as [NewLatest] does, texts as they are. With a
// header, each file begins with a record of the names of the fields, and all tuples
// of a file must have the same. Files are named .csv.
func CSV(header bool) Format {
	f := Format{suffix: ".csv", append: func(dst []byte, t *tuple.Tuple) ([]byte, error) {
		var scratch [64]byte
		for i, v := range t.Values() {
			text, ok := v.Text()
			if !ok {
				text = string(appendPlain(scratch[:0], v))
			}
			dst = appendCSV(dst, i, t.Len(), text)
		}
		return append(dst, '\r', '\n'), nil
	}}
	if header {
		f.header = func(dst []byte, s *tuple.Stream) []byte {
			for i, name := range s.Fields {
				dst = appendCSV(dst, i, len(s.Fields), name)
			}
			return append(dst, '\r', '\n')
		}
	}
	return f
}

// appendCSV appends field i of a record of so many.
func appendCSV(dst []byte, i, of int, text string) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	// A record of one empty field would be an empty line, which readers skip.
	if !strings.ContainsAny(text, ",\"\r\n") && (text != "" || of > 1) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for {
		before, after, found := strings.Cut(text, `"`)
		dst = append(dst, before...)
		if !found {
			return append(dst, '"')
		}
		dst = append(dst, '"', '"')
		text = after
	}
}
