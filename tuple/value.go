package tuple

import (
	"fmt"
	"math"
	"strconv"
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
// without allocating, in the manner of log/slog's Value. The zero Value is nil.
//
// A Value of KindBytes that was read from a tuple points into the tuple's frame
// and is valid only while the tuple is; all other kinds are valid for ever.
type Value struct {
	num uint64
	// any holds a Kind for the numeric kinds, a stringptr or bytesptr for text,
	// nil for nil, and the object itself for KindAny.
	any any
}

type (
	stringptr *byte
	bytesptr  *byte
	// boxedKind keeps a user's own Kind value from being taken for a tag.
	boxedKind struct{ k Kind }
)

// String returns a Value that shares s's bytes.
func String(s string) Value {
	return Value{num: uint64(len(s)), any: stringptr(unsafe.StringData(s))}
}

// Bytes returns a Value that refers to b without copying it; emitting it copies.
func Bytes(b []byte) Value {
	return Value{num: uint64(len(b)), any: bytesptr(unsafe.SliceData(b))}
}

// Int64 returns a Value of KindInt64.
func Int64(v int64) Value { return Value{num: uint64(v), any: KindInt64} }

// Int returns a Value of KindInt64.
func Int(v int) Value { return Int64(int64(v)) }

// Uint64 returns a Value of KindUint64.
func Uint64(v uint64) Value { return Value{num: v, any: KindUint64} }

// Float64 returns a Value of KindFloat64.
func Float64(v float64) Value { return Value{num: math.Float64bits(v), any: KindFloat64} }

// Bool returns a Value of KindBool.
func Bool(v bool) Value {
	if v {
		return Value{num: 1, any: KindBool}
	}
	return Value{any: KindBool}
}

// Time returns a Value of KindTime with nanosecond precision in UTC. Times outside
// the years 1678 to 2262 do not fit and are held as KindAny.
func Time(t time.Time) Value {
	if y := t.Year(); y < 1678 || y > 2261 {
		return Value{any: t}
	}
	return Value{num: uint64(t.UnixNano()), any: KindTime}
}

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
	case uint64:
		return Uint64(v)
	case uint32:
		return Uint64(uint64(v))
	case float64:
		return Float64(v)
	case bool:
		return Bool(v)
	case time.Time:
		return Time(v)
	case Value:
		return v
	case Kind:
		return Value{any: boxedKind{v}}
	default:
		return Value{any: v}
	}
}

// Kind returns the kind of v.
func (v Value) Kind() Kind {
	switch x := v.any.(type) {
	case stringptr:
		return KindString
	case Kind:
		return x
	case bytesptr:
		return KindBytes
	case nil:
		return KindNil
	default:
		return KindAny
	}
}

// IsNil reports whether v is the nil value.
func (v Value) IsNil() bool { return v.any == nil }

// Text returns the bytes of a string or bytes value as a string that shares them,
// and whether v is one of the two. The result is valid only as long as v is.
func (v Value) Text() (string, bool) {
	switch p := v.any.(type) {
	case stringptr:
		return unsafe.String((*byte)(p), v.num), true
	case bytesptr:
		return unsafe.String((*byte)(p), v.num), true
	}
	return "", false
}

// Str returns the string of v. It panics if v is neither string nor bytes; of a
// bytes value it returns a copy.
func (v Value) Str() string {
	switch p := v.any.(type) {
	case stringptr:
		return unsafe.String((*byte)(p), v.num)
	case bytesptr:
		return string(unsafe.Slice((*byte)(p), v.num))
	}
	panic(v.mismatch(KindString))
}

// Bytes returns the bytes of v, which the caller must not change and must not keep
// longer than the tuple. It panics if v is neither bytes nor string.
func (v Value) Bytes() []byte {
	switch p := v.any.(type) {
	case bytesptr:
		return unsafe.Slice((*byte)(p), v.num)
	case stringptr:
		return unsafe.Slice((*byte)(p), v.num)
	}
	panic(v.mismatch(KindBytes))
}

// Int64 returns the integer of v. It panics if v is of another kind, or a uint64
// that does not fit.
func (v Value) Int64() int64 {
	switch v.any {
	case KindInt64:
		return int64(v.num)
	case KindUint64:
		if v.num <= math.MaxInt64 {
			return int64(v.num)
		}
	}
	panic(v.mismatch(KindInt64))
}

// Uint64 returns the unsigned integer of v. It panics if v is of another kind, or
// a negative int64.
func (v Value) Uint64() uint64 {
	switch v.any {
	case KindUint64:
		return v.num
	case KindInt64:
		if int64(v.num) >= 0 {
			return v.num
		}
	}
	panic(v.mismatch(KindUint64))
}

// Float64 returns the float of v. It panics if v is of another kind.
func (v Value) Float64() float64 {
	if v.any == KindFloat64 {
		return math.Float64frombits(v.num)
	}
	panic(v.mismatch(KindFloat64))
}

// Bool returns the boolean of v. It panics if v is of another kind.
func (v Value) Bool() bool {
	if v.any == KindBool {
		return v.num != 0
	}
	panic(v.mismatch(KindBool))
}

// Time returns the time of v in UTC. It panics if v is of another kind.
func (v Value) Time() time.Time {
	if v.any == KindTime {
		return time.Unix(0, int64(v.num)).UTC()
	}
	if t, ok := v.any.(time.Time); ok {
		return t
	}
	panic(v.mismatch(KindTime))
}

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
	}
	if b, ok := v.any.(boxedKind); ok {
		return b.k
	}
	return v.any
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
