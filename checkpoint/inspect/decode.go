package inspect

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Hex is bytes that no codec is known for, or that are no text. In JSON it is an object,
// {"hex":"00ff"}, to be told from a text.
type Hex []byte

// MarshalJSON implements json.Marshaler.
func (h Hex) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"hex": hex.EncodeToString(h)})
}

// String returns the digits.
func (h Hex) String() string { return hex.EncodeToString(h) }

// decoder returns what bytes stand for: an int64, float64, string, json.RawMessage, or
// Hex where that is not known.
type decoder func(payload []byte, version uint8) any

// decoderOf returns the decoder of the built-in codec or aggregator of that name. What
// another codec wrote is opaque.
func decoderOf(codec string) decoder {
	switch codec {
	case "int64", "sum", "min", "max":
		return decodeWith(txn.Int64Codec())
	case "int64ordered":
		return decodeWith(txn.OrderedInt64Codec())
	case "float64", "sumfloat":
		return decodeWith(txn.Float64Codec())
	case "string":
		return func(b []byte, version uint8) any {
			if version != 1 || !utf8.Valid(b) {
				return Hex(b)
			}
			return string(b)
		}
	case "timer":
		return func([]byte, uint8) any { return nil }
	}
	if strings.HasPrefix(codec, "json:") {
		return func(b []byte, _ uint8) any {
			if !json.Valid(b) {
				return Hex(b)
			}
			return json.RawMessage(b)
		}
	}
	return func(b []byte, _ uint8) any { return Hex(b) }
}

func decodeWith[T any](c txn.Codec[T]) decoder {
	return func(b []byte, version uint8) any {
		if v, err := c.Decode(b, version); err == nil && version == c.Version {
			return v
		}
		return Hex(b)
	}
}

var mapCodecForm = regexp.MustCompile(`^\[(.*)\.([0-9]+)\](.*)$`)

// mapCodecs returns the decoder of a map's own keys, and the name of the codec of its
// values.
func mapCodecs(codec string) (key decoder, value string, err error) {
	m := mapCodecForm.FindStringSubmatch(codec)
	if m == nil {
		return nil, "", fmt.Errorf("the codec of a map is %q, must be [KEY.VERSION]VALUE", codec)
	}
	version, err := strconv.ParseUint(m[2], 10, 8)
	if err != nil {
		return nil, "", fmt.Errorf("the codec of a map is %q: %w", codec, err)
	}
	decode := decoderOf(m[1])
	return func(b []byte, _ uint8) any { return decode(b, uint8(version)) }, m[3], nil
}

// Value returns the value of an entry as JSON would have it; of a timer nil.
func (s *State) Value(e *Entry) any { return jsonNumber(s.layout.value(e.Payload, e.Version)) }

// MapKey returns the own key of a map's entry as JSON would have it; of other kinds nil.
func (s *State) MapKey(e *Entry) any {
	if s.layout.base != "map" {
		return nil
	}
	return jsonNumber(s.layout.mapKey(e.MapKey, 0))
}

// Kind returns the kind of the state without its "+ttl": value, aggregate, map, list or
// timer.
func (s *State) Kind() string { return s.layout.base }

// jsonNumber returns v, or the name of a number that JSON does not have.
func jsonNumber(v any) any {
	if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return v
}

// JSONKey returns an encoded key as an array that ParseKey reads back: texts, integers
// (int64), true, false and null as they are, others as an object of one member that names
// the kind: {"float64":1.5}, {"uint64":1}, {"time":"2006-01-02T15:04:05Z"}, {"hex":"ff"}.
func JSONKey(key []byte) ([]any, error) {
	vals, err := tuple.DecodeKey(key)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, v := range vals {
		switch v.Kind() {
		case tuple.KindNil, tuple.KindBool, tuple.KindInt64:
			out = append(out, v.Any())
		case tuple.KindString, tuple.KindBytes:
			if text, _ := v.Text(); utf8.ValidString(text) {
				out = append(out, text)
			} else {
				out = append(out, Hex(text))
			}
		case tuple.KindTime:
			out = append(out, map[string]any{"time": v.Time().Format(time.RFC3339Nano)})
		case tuple.KindUint64, tuple.KindFloat64, tuple.KindAny:
			out = append(out, map[string]any{v.Kind().String(): jsonNumber(v.Any())})
		}
	}
	return out, nil
}

// ParseKey returns the values of a key that is written as JSONKey does. A number with a
// point or an exponent is a float64 too.
func ParseKey(text string) ([]tuple.Value, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var elements []any
	if err := dec.Decode(&elements); err != nil || dec.More() {
		return nil, fmt.Errorf(`key %q: must be a JSON array of the key's values, as ["a",7]`, text)
	}
	var vals []tuple.Value
	for i, e := range elements {
		v, err := parseValue(e)
		if err != nil {
			return nil, fmt.Errorf("key %q: value %d: %w", text, i, err)
		}
		vals = append(vals, v)
	}
	return vals, nil
}

func parseValue(e any) (tuple.Value, error) {
	switch e := e.(type) {
	case nil:
		return tuple.Value{}, nil
	case bool:
		return tuple.Bool(e), nil
	case string:
		return tuple.String(e), nil
	case json.Number:
		if strings.ContainsAny(string(e), ".eE") {
			f, err := e.Float64()
			return tuple.Float64(f), err
		}
		n, err := e.Int64()
		return tuple.Int64(n), err
	case map[string]any:
		if len(e) == 1 {
			for kind, of := range e {
				return parseKind(kind, fmt.Sprint(of))
			}
		}
	}
	return tuple.Value{}, fmt.Errorf(`it is neither text, number, true, false, null nor {"KIND":VALUE}`)
}

func parseKind(kind, text string) (v tuple.Value, err error) {
	switch kind {
	case "hex":
		var b []byte
		b, err = hex.DecodeString(text)
		v = tuple.String(string(b))
	case "int64":
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		v = tuple.Int64(n)
	case "uint64":
		var n uint64
		n, err = strconv.ParseUint(text, 10, 64)
		v = tuple.Uint64(n)
	case "float64":
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		v = tuple.Float64(f)
	case "time":
		var t time.Time
		t, err = time.Parse(time.RFC3339Nano, text)
		v = tuple.Time(t)
	default:
		err = fmt.Errorf("its kind is %q, must be hex, int64, uint64, float64 or time", kind)
	}
	return v, err
}
