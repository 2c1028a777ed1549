package txn

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Codec turns the values of a state into bytes and back. Its name and version are
// kept in checkpoints; every stored value begins with the version that wrote it.
type Codec[T any] struct {
	Name    string
	Version uint8
	// Append appends the encoding of v to dst. It must not keep v.
	Append func(dst []byte, v T) ([]byte, error)
	// Decode reads what Append of the given version wrote; it must not keep b. A
	// codec that has moved on migrates older versions here and refuses unknown ones.
	Decode func(b []byte, version uint8) (T, error)
	// Size estimates the bytes that v occupies in memory beyond its own type. May be
	// nil for types that refer to nothing.
	Size func(v T) int
	// Clone returns a value that shares nothing that can change. May be nil for
	// types that are copied by assignment.
	Clone func(v T) T
}

var errShort = errors.New("wrong length")

func fixed[T any](name string, enc func(T) uint64, dec func(uint64) T) Codec[T] {
	return Codec[T]{
		Name:    name,
		Version: 1,
		Append: func(dst []byte, v T) ([]byte, error) {
			return binary.BigEndian.AppendUint64(dst, enc(v)), nil
		},
		Decode: func(b []byte, _ uint8) (T, error) {
			var zero T
			if len(b) != 8 {
				return zero, errShort
			}
			return dec(binary.BigEndian.Uint64(b)), nil
		},
	}
}

// Int64Codec encodes integers in 8 bytes, big endian.
func Int64Codec() Codec[int64] {
	return fixed("int64", func(v int64) uint64 { return uint64(v) }, func(w uint64) int64 { return int64(w) })
}

// OrderedInt64Codec encodes integers in 8 bytes that order as the integers do: big
// endian, sign bit flipped. It suits the keys of a Map.
func OrderedInt64Codec() Codec[int64] {
	return fixed("int64ordered", func(v int64) uint64 { return uint64(v) ^ 1<<63 }, func(w uint64) int64 { return int64(w ^ 1<<63) })
}

// Float64Codec encodes floats in 8 bytes, big endian.
func Float64Codec() Codec[float64] { return fixed("float64", math.Float64bits, math.Float64frombits) }

// StringCodec encodes strings as their bytes.
func StringCodec() Codec[string] {
	return Codec[string]{
		Name:    "string",
		Version: 1,
		Append:  func(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil },
		Decode:  func(b []byte, _ uint8) (string, error) { return string(b), nil },
		Size:    func(v string) int { return len(v) },
	}
}

// BytesCodec encodes byte slices as they are.
func BytesCodec() Codec[[]byte] {
	clone := func(v []byte) []byte { return append([]byte{}, v...) }
	return Codec[[]byte]{
		Name:    "bytes",
		Version: 1,
		Append:  func(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil },
		Decode:  func(b []byte, _ uint8) ([]byte, error) { return clone(b), nil },
		Size:    func(v []byte) int { return len(v) },
		Clone:   clone,
	}
}

// JSONCodec encodes values with encoding/json. Values are copied by encoding them,
// so that nothing a caller keeps can change the state. name and version are kept in
// checkpoints as "json:name".
func JSONCodec[T any](name string, version uint8) Codec[T] {
	return Codec[T]{
		Name:    "json:" + name,
		Version: version,
		Append: func(dst []byte, v T) ([]byte, error) {
			b, err := json.Marshal(v)
			return append(dst, b...), err
		},
		Decode: func(b []byte, have uint8) (T, error) {
			var v T
			if have > version {
				return v, fmt.Errorf("written by version %d, this is version %d", have, version)
			}
			return v, json.Unmarshal(b, &v)
		},
		Size: func(v T) int { b, _ := json.Marshal(v); return len(b) },
		Clone: func(v T) T {
			var c T
			if b, err := json.Marshal(v); err == nil && json.Unmarshal(b, &c) == nil {
				return c
			}
			return v
		},
	}
}

// Aggregator combines values of a key: an associative and commutative operation.
type Aggregator[T any] struct {
	// Kind is the first byte of stored values: 1-15 are built in and can be merged
	// by anyone who reads the files; 0 is for the user's own.
	Kind    uint8
	Codec   Codec[T]
	Combine func(a, b T) T
}

// Sum adds integers, wrapping around as Go does.
func Sum() Aggregator[int64] {
	return Aggregator[int64]{Kind: kindSum, Codec: named(Int64Codec(), "sum"), Combine: func(a, b int64) int64 { return a + b }}
}

// Min keeps the smallest integer.
func Min() Aggregator[int64] {
	return Aggregator[int64]{Kind: kindMin, Codec: named(Int64Codec(), "min"), Combine: func(a, b int64) int64 { return min(a, b) }}
}

// Max keeps the largest integer.
func Max() Aggregator[int64] {
	return Aggregator[int64]{Kind: kindMax, Codec: named(Int64Codec(), "max"), Combine: func(a, b int64) int64 { return max(a, b) }}
}

// SumFloat adds floats.
func SumFloat() Aggregator[float64] {
	return Aggregator[float64]{Kind: kindSumFloat, Codec: named(Float64Codec(), "sumfloat"), Combine: func(a, b float64) float64 { return a + b }}
}

// NewAggregator returns an aggregator of the user's own. combine must be associative
// and commutative and must not change its arguments.
func NewAggregator[T any](codec Codec[T], combine func(a, b T) T) Aggregator[T] {
	return Aggregator[T]{Codec: codec, Combine: combine}
}

func named[T any](c Codec[T], name string) Codec[T] {
	c.Name = name
	return c
}
