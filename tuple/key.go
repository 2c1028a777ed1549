package tuple

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Keys are stored in an order-preserving encoding, the same for every state and
// every checkpoint. Each value is a tag byte followed by its payload:
//
//	0x01 nil      no payload
//	0x02 bool     1 byte
//	0x03 int64    8 bytes, big endian, sign bit flipped
//	0x04 uint64   8 bytes, big endian
//	0x05 float64  8 bytes, big endian, flipped so that bytes order as numbers
//	0x06 text     string or bytes that is not the last value: 0x00 is written as
//	              0x00 0xFF, and the text ends with 0x00 0x01
//	0x07 time     8 bytes as int64 nanoseconds since 1970
//	0x08 text     string or bytes that is the last value: its bytes, to the end
const (
	tagNil   = 0x01
	tagBool  = 0x02
	tagInt   = 0x03
	tagUint  = 0x04
	tagFloat = 0x05
	tagInner = 0x06
	tagTime  = 0x07
	tagText  = 0x08
)

// TagText is the first byte of the encoding of a key that is one text: the rest of
// it is the text itself.
const TagText byte = tagText

// ErrKeyKind is returned for a key with a value that has no key encoding.
var ErrKeyKind = errors.New("tuple: an object value cannot be part of a key")

// AppendKey appends the encoding of a key made of vals to dst.
func AppendKey(dst []byte, vals ...Value) ([]byte, error) {
	for i, v := range vals {
		if s, ok := v.Text(); ok {
			if i == len(vals)-1 {
				dst = append(append(dst, tagText), s...)
			} else {
				dst = appendEscaped(append(dst, tagInner), s)
			}
			continue
		}
		switch k := v.Kind(); k {
		case KindNil:
			dst = append(dst, tagNil)
		case KindBool:
			dst = append(dst, tagBool, byte(v.num))
		case KindInt64:
			dst = binary.BigEndian.AppendUint64(append(dst, tagInt), v.num^1<<63)
		case KindUint64:
			dst = binary.BigEndian.AppendUint64(append(dst, tagUint), v.num)
		case KindFloat64:
			b := v.keyBits(k)
			if b>>63 != 0 {
				b = ^b
			} else {
				b |= 1 << 63
			}
			dst = binary.BigEndian.AppendUint64(append(dst, tagFloat), b)
		case KindTime:
			dst = binary.BigEndian.AppendUint64(append(dst, tagTime), v.num^1<<63)
		case KindString, KindBytes, KindAny:
			return dst, ErrKeyKind
		}
	}
	return dst, nil
}

func appendEscaped(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, s[i])
		if s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}

// DecodeKey returns the values of an encoded key. Text comes back as KindString. A zero or
// a NaN that [AppendKey] does not write is refused, as it would be a second form of a key.
func DecodeKey(key []byte) ([]Value, error) {
	var vals []Value
	for rest := key; len(rest) > 0; {
		v, n, err := decodeKeyValue(rest)
		if err != nil {
			return nil, fmt.Errorf("tuple: decode key %x: value %d: %w", key, len(vals), err)
		}
		vals = append(vals, v)
		rest = rest[n:]
	}
	return vals, nil
}

func decodeKeyValue(b []byte) (Value, int, error) {
	word := func() (uint64, error) {
		if len(b) < 9 {
			return 0, errors.New("too short")
		}
		return binary.BigEndian.Uint64(b[1:]), nil
	}
	switch b[0] {
	case tagNil:
		return Value{}, 1, nil
	case tagBool:
		if len(b) < 2 || b[1] > 1 {
			return Value{}, 0, errors.New("bad bool")
		}
		return Bool(b[1] == 1), 2, nil
	case tagInt:
		w, err := word()
		return Int64(int64(w ^ 1<<63)), 9, err
	case tagUint:
		w, err := word()
		return Uint64(w), 9, err
	case tagFloat:
		w, err := word()
		if w>>63 != 0 {
			w &^= 1 << 63
		} else {
			w = ^w
		}
		v := Float64(math.Float64frombits(w))
		if err == nil && v.keyBits(KindFloat64) != w {
			err = errors.New("a number that no writer makes")
		}
		return v, 9, err
	case tagTime:
		w, err := word()
		return unixNano(int64(w ^ 1<<63)), 9, err
	case tagInner:
		return decodeInnerText(b)
	case tagText:
		return String(string(b[1:])), len(b), nil
	}
	return Value{}, 0, fmt.Errorf("unknown tag %#x", b[0])
}

func decodeInnerText(b []byte) (Value, int, error) {
	var sb strings.Builder
	for i := 1; i+1 < len(b); i++ {
		switch {
		case b[i] != 0:
			sb.WriteByte(b[i])
		case b[i+1] == 0xff:
			sb.WriteByte(0)
			i++
		case b[i+1] == 1:
			return String(sb.String()), i + 2, nil
		default:
			return Value{}, 0, errors.New("bad escape in text")
		}
	}
	return Value{}, 0, errors.New("text does not end")
}

// FormatKey returns an encoded key as people read it: values joined by ", ".
func FormatKey(key []byte) string {
	vals, err := DecodeKey(key)
	if err != nil {
		return fmt.Sprintf("%x", key)
	}
	var sb strings.Builder
	for i, v := range vals {
		if i > 0 {
			sb.WriteString(", ")
		}
		if v.Kind() == KindTime {
			sb.WriteString(v.Time().Format(time.RFC3339Nano))
			continue
		}
		if s, ok := v.Text(); ok && len(vals) == 1 {
			q := strconv.Quote(s)
			sb.WriteString(q[1 : len(q)-1])
			continue
		}
		sb.WriteString(v.String())
	}
	return sb.String()
}
