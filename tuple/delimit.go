package tuple

import (
	"bytes"
	"errors"
	"fmt"
)

// keyEnd follows the last value of a key in its delimited form. No tag is 0x00.
const keyEnd = 0x00

// AppendDelimited appends an encoded key to dst in a form that says where it ends, so
// that something else may follow: a text that is the last value is encoded like the
// others, and 0x00 comes after the last value. No form is the beginning of another
// one, and without its last byte it is the beginning of the forms of all longer keys
// with the same first values. key must come from AppendKey.
func AppendDelimited(dst, key []byte) []byte {
	for rest := key; len(rest) > 0; {
		if rest[0] == tagText {
			dst = appendEscaped(append(dst, tagInner), string(rest[1:]))
			break
		}
		n, err := delimitedValueLen(rest)
		if err != nil {
			panic(fmt.Sprintf("broken invariant: %x is no encoded key: %v", key, err))
		}
		dst = append(dst, rest[:n]...)
		rest = rest[n:]
	}
	return append(dst, keyEnd)
}

// DelimitedLen returns how many bytes of b are the delimited key at its beginning.
func DelimitedLen(b []byte) (int, error) {
	for at := 0; at < len(b); {
		if b[at] == keyEnd {
			return at + 1, nil
		}
		n, err := delimitedValueLen(b[at:])
		if err != nil {
			return 0, fmt.Errorf("tuple: delimited key %x: byte %d: %w", b, at, err)
		}
		at += n
	}
	return 0, fmt.Errorf("tuple: delimited key %x: it does not end", b)
}

// SplitDelimited returns the key at the beginning of b, encoded as by AppendKey, and
// what follows it. rest is a part of b.
func SplitDelimited(b []byte) (key, rest []byte, err error) {
	n, err := DelimitedLen(b)
	if err != nil {
		return nil, nil, err
	}
	vals, err := DecodeKey(b[:n-1])
	if err == nil {
		key, err = AppendKey(nil, vals...)
	}
	return key, b[n:], err
}

// delimitedValueLen returns the length of the encoded value at the beginning of b,
// which is not empty.
func delimitedValueLen(b []byte) (int, error) {
	var n int
	switch b[0] {
	case tagNil:
		n = 1
	case tagBool:
		n = 2
	case tagInt, tagUint, tagFloat, tagTime:
		n = 9
	case tagInner:
		for i := 1; ; i += 2 {
			zero := bytes.IndexByte(b[i:], 0)
			if zero < 0 || i+zero+1 >= len(b) {
				return 0, errors.New("text does not end")
			}
			i += zero
			if b[i+1] == 1 {
				return i + 2, nil
			}
		}
	default:
		return 0, fmt.Errorf("unknown tag %#x", b[0])
	}
	if n > len(b) {
		return 0, errors.New("too short")
	}
	return n, nil
}
