package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// Codec is how the objects of one type cross a process border; [Object] makes one.
type Codec struct {
	name   string
	typ    reflect.Type
	object bool // a value of typ is of KindAny
	encode func(dst []byte, v any) ([]byte, error)
	decode func(data []byte) (any, error)
}

// Object returns the codec of a type under a name, which every process of a topology
// must know it by. encode appends to dst. decode must not keep data, and must refuse
// bytes that it does not understand.
func Object[T any](name string, encode func(dst []byte, v T) ([]byte, error), decode func(data []byte) (T, error)) Codec {
	var zero T
	return Codec{
		name:   name,
		typ:    reflect.TypeFor[T](),
		object: tuple.Any(zero).Kind() == tuple.KindAny,
		encode: func(dst []byte, v any) ([]byte, error) { return encode(dst, v.(T)) },
		decode: func(data []byte) (any, error) { return decode(data) },
	}
}

// Registry holds the codecs of a topology. It never changes, so any number of
// encoders and decoders may share it. Every Registry knows times that are too far
// away for tuple.KindTime, by the name "time"; they come back in UTC.
type Registry struct {
	byName map[string]*Codec
	byType map[reflect.Type]*Codec
}

// NewRegistry returns a Registry of these codecs. The error joins every mistake: a
// name or type that comes twice, an interface, a type that tuples hold unboxed.
func NewRegistry(codecs ...Codec) (*Registry, error) {
	r := &Registry{byName: map[string]*Codec{}, byType: map[reflect.Type]*Codec{}}
	var errs []error
	for _, c := range append([]Codec{farTime}, codecs...) {
		switch {
		case c.name == "":
			errs = append(errs, fmt.Errorf("codec of %s: it has no name", c.typ))
		case r.byName[c.name] != nil:
			errs = append(errs, fmt.Errorf("codec %q of %s: the name is that of the codec of %s", c.name, c.typ, r.byName[c.name].typ))
		case r.byType[c.typ] != nil:
			errs = append(errs, fmt.Errorf("codec %q of %s: the type has the codec %q", c.name, c.typ, r.byType[c.typ].name))
		case !c.object:
			errs = append(errs, fmt.Errorf("codec %q of %s: tuples hold no objects of this type; register the types of what is emitted", c.name, c.typ))
		}
		r.byName[c.name], r.byType[c.typ] = &c, &c
	}
	return r, errors.Join(errs...)
}

// codecOf returns the codec for an object.
func (r *Registry) codecOf(v any) (*Codec, error) {
	if c := r.byType[reflect.TypeOf(v)]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no codec is registered for type %T: register one, or emit its parts", v)
}

var farTime = Object("time",
	func(dst []byte, t time.Time) ([]byte, error) {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Unix()))
		return binary.LittleEndian.AppendUint32(dst, uint32(t.Nanosecond())), nil
	},
	func(b []byte) (time.Time, error) {
		if len(b) != 12 {
			return time.Time{}, fmt.Errorf("it has %d bytes, not 12", len(b))
		}
		nanos := binary.LittleEndian.Uint32(b[8:])
		if nanos >= 1e9 {
			return time.Time{}, fmt.Errorf("%d nanoseconds in a second", nanos)
		}
		return time.Unix(int64(binary.LittleEndian.Uint64(b)), int64(nanos)).UTC(), nil
	})
