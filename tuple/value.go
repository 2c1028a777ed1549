package tuple

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Kind says what a Value holds.
type Kind uint8

// The kinds. Their numbers are part of the key encoding and of the wire format
// and never change.
const (
	KindNil     Kind = 0
	KindBool    Kind = 1
	KindInt64   Kind = 2
	KindUint64  Kind = 3
	KindFloat64 Kind = 4
	KindString  Kind = 5
	KindBytes   Kind = 6
	KindTime    Kind = 7
	KindAny     Kind = 8
)

var kindNames = [...]string{"nil", "bool", "int64", "uint64", "float64", "string", "bytes", "time", "any"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Value is one field of a tuple: a small typed union that holds the common kinds
// without allocating. The zero Value is nil.
//
// A Value of KindBytes that was read from a tuple points into the tuple's frame
// and is valid only while the tuple is; all other kinds are valid for ever.
type Value struct {
	// ptr is nil for nil, points at tags[kind] for numbers and for empty text, at the
	// first byte of other text, and at an any for KindAny. Two words a value instead
	// of the three of log/slog's: frames are a third smaller, and every hop faster.
	ptr unsafe.Pointer
	// num is the payload of a number, or the length of a text with bytesBit set for
	// bytes, or anyBit.
	num uint64
}

const (
	bytesBit = 1 << 63
	anyBit   = 1 << 62
)

// tags has one address for each kind.
var tags [16]byte

func tag(k Kind) unsafe.Pointer { return unsafe.Pointer(&tags[k]) }

// tagged returns the kind whose tag ptr is, and whether it is one.
func (v Value) tagged() (Kind, bool) {
	d := uintptr(v.ptr) - uintptr(unsafe.Pointer(&tags))
	return Kind(d), d < uintptr(len(tags))
}

// String returns a Value that shares s's bytes.
func String(s string) Value {
	if len(s) == 0 {
		return Value{ptr: tag(KindString)}
	}
	return Value{ptr: unsafe.Pointer(unsafe.StringData(s)), num: uint64(len(s))}
}

// Bytes returns a Value that refers to b without copying it; emitting it copies.
func Bytes(b []byte) Value {
	if len(b) == 0 {
		return Value{ptr: tag(KindBytes)}
	}
	return Value{ptr: unsafe.Pointer(unsafe.SliceData(b)), num: uint64(len(b)) | bytesBit}
}

// Int64 returns a Value of KindInt64.
func Int64(v int64) Value { return Value{ptr: tag(KindInt64), num: uint64(v)} }

// Int returns a Value of KindInt64.
func Int(v int) Value { return Int64(int64(v)) }

// Uint64 returns a Value of KindUint64.
func Uint64(v uint64) Value { return Value{ptr: tag(KindUint64), num: v} }

// Float64 returns a Value of KindFloat64.
func Float64(v float64) Value { return Value{ptr: tag(KindFloat64), num: math.Float64bits(v)} }

// Bool returns a Value of KindBool.
func Bool(v bool) Value {
	if v {
		return Value{ptr: tag(KindBool), num: 1}
	}
	return Value{ptr: tag(KindBool)}
}

// Time returns a Value of KindTime with nanosecond precision in UTC. Times outside
// the years 1678 to 2262 do not fit and are held as KindAny.
func Time(t time.Time) Value {
	if y := t.Year(); y < 1678 || y > 2261 {
		return object(t)
	}
	return unixNano(t.UnixNano())
}

func unixNano(ns int64) Value { return Value{ptr: tag(KindTime), num: uint64(ns)} }

func object(v any) Value { return Value{ptr: unsafe.Pointer(&v), num: anyBit} }

// FromWord returns the Value of a kind of fixed size, [KindBool] to [KindFloat64] or
// [KindTime], whose [Value.Word] is w; of a bool it is 0 or 1.
func FromWord(k Kind, w uint64) Value { return Value{ptr: tag(k), num: w} }

// Any returns a Value for v: one of the unboxed kinds where v's type has one, and
// otherwise KindAny, which crosses a process border only through a registered codec.
func Any(v any) Value {
	switch v := v.(type) {
	case nil:
		return Value{}
	case string:
		return String(v)
	case []byte:
		return Bytes(v)
	case int:
		return Int(v)
	case int64:
		return Int64(v)
	case int32:
		return Int64(int64(v))
	case int16:
		return Int64(int64(v))
	case int8:
		return Int64(int64(v))
	case uint64:
		return Uint64(v)
	case uint32:
		return Uint64(uint64(v))
	case uint16:
		return Uint64(uint64(v))
	case uint8:
		return Uint64(uint64(v))
	case uint:
		return Uint64(uint64(v))
	case float64:
		return Float64(v)
	case float32:
		return Float64(float64(v))
	case bool:
		return Bool(v)
	case time.Time:
		return Time(v)
	case Value:
		return v
	default:
		return object(v)
	}
}

// Kind returns the kind of v.
func (v Value) Kind() Kind {
	if k, ok := v.tagged(); ok {
		return k
	}
	switch {
	case v.ptr == nil:
		return KindNil
	case v.num&bytesBit != 0:
		return KindBytes
	case v.num&anyBit != 0:
		return KindAny
	}
	return KindString
}

func (v Value) isBytes() bool { return v.num&bytesBit != 0 && v.Kind() == KindBytes }

// IsNil reports whether v is the nil value.
func (v Value) IsNil() bool { return v.ptr == nil }

// Text returns the bytes of a string or bytes value as a string that shares them,
// and whether v is one of the two. The result is valid only as long as v is.
func (v Value) Text() (string, bool) {
	if k, ok := v.tagged(); ok {
		return "", k == KindString || k == KindBytes
	}
	if v.ptr == nil || v.num&anyBit != 0 {
		return "", false
	}
	return unsafe.String((*byte)(v.ptr), v.num&^bytesBit), true
}

// Str returns the string of v. It panics if v is neither string nor bytes; of a
// bytes value it returns a copy.
func (v Value) Str() string {
	s, ok := v.Text()
	if !ok {
		panic(v.mismatch(KindString))
	}
	if v.isBytes() {
		s = strings.Clone(s)
	}
	return s
}

// Bytes returns the bytes of v, which the caller must not change and must not keep
// longer than the tuple. It panics if v is neither bytes nor string.
func (v Value) Bytes() []byte {
	s, ok := v.Text()
	if !ok {
		panic(v.mismatch(KindBytes))
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// Int64 returns the integer of v. It panics if v is of another kind, or a uint64
// that does not fit.
func (v Value) Int64() int64 {
	k := v.Kind()
	if k == KindInt64 || k == KindUint64 && v.num <= math.MaxInt64 {
		return int64(v.num)
	}
	panic(v.mismatch(KindInt64))
}

// Uint64 returns the unsigned integer of v. It panics if v is of another kind, or
// a negative int64.
func (v Value) Uint64() uint64 {
	k := v.Kind()
	if k == KindUint64 || k == KindInt64 && int64(v.num) >= 0 {
		return v.num
	}
	panic(v.mismatch(KindUint64))
}

// Float64 returns the float of v. It panics if v is of another kind.
func (v Value) Float64() float64 {
	if v.Kind() == KindFloat64 {
		return math.Float64frombits(v.num)
	}
	panic(v.mismatch(KindFloat64))
}

// Bool returns the boolean of v. It panics if v is of another kind.
func (v Value) Bool() bool {
	if v.Kind() == KindBool {
		return v.num != 0
	}
	panic(v.mismatch(KindBool))
}

// Time returns the time of v in UTC. It panics if v is of another kind.
func (v Value) Time() time.Time {
	k := v.Kind()
	if k == KindTime {
		return time.Unix(0, int64(v.num)).UTC()
	}
	if t, ok := v.Any().(time.Time); ok && k == KindAny {
		return t
	}
	panic(v.mismatch(KindTime))
}

// Word returns the 64 bits that hold a value of a kind of fixed size; see [FromWord].
func (v Value) Word() uint64 { return v.num }

// Any returns v as a Go value: string, []byte (shared), int64, uint64, float64,
// bool, time.Time, nil, or the object given to [Any].
func (v Value) Any() any {
	switch v.Kind() {
	case KindNil:
		return nil
	case KindBool:
		return v.Bool()
	case KindInt64:
		return int64(v.num)
	case KindUint64:
		return v.num
	case KindFloat64:
		return v.Float64()
	case KindString:
		return v.Str()
	case KindBytes:
		return v.Bytes()
	case KindTime:
		return v.Time()
	case KindAny:
	}
	return *(*any)(v.ptr)
}

// String formats v for people: text quoted, everything else as fmt would.
func (v Value) String() string {
	if s, ok := v.Text(); ok {
		const most = 128
		if len(s) > most {
			return strconv.Quote(s[:most]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
		}
		return strconv.Quote(s)
	}
	return fmt.Sprint(v.Any())
}

func (v Value) mismatch(want Kind) string {
	return fmt.Sprintf("tuple: value %s is of kind %s, not %s", v, v.Kind(), want)
}
