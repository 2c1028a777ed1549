package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/isobar-io/isobar/tuple"
)

// Encoder turns frames into bytes. One goroutine uses it at a time.
type Encoder struct {
	registry *Registry
	limits   Limits
	kinds    []byte   // of the columns
	text     []byte   // of the string values
	raw      []byte   // of the bytes values
	codecs   []*Codec // named in this frame so far
	object   []byte
}

// NewEncoder returns an Encoder that knows the objects of r.
func NewEncoder(r *Registry, l Limits) *Encoder {
	return &Encoder{registry: r, limits: l.orDefault()}
}

// Append appends the encoding of f, which it leaves as it is, to dst. On an error,
// which names stream and field, dst is returned as it was given.
func (e *Encoder) Append(dst []byte, f *tuple.Frame) ([]byte, error) {
	begin := len(dst)
	out, err := e.append(dst, f)
	if err == nil {
		err = e.limits.frame(len(out) + checksumBytes - begin)
	}
	if err != nil {
		return dst, fmt.Errorf("encode a frame of %s: %w", streamName(f.Stream), err)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out[begin:], castagnoli)), nil
}

func (e *Encoder) append(dst []byte, f *tuple.Frame) ([]byte, error) {
	dst, err := header(dst, f)
	n, width := f.Len(), f.Width()
	dst = binary.AppendUvarint(dst, uint64(n))
	if err != nil || n == 0 {
		return dst, err
	}
	if err := e.limits.values(uint64(n), uint64(width)); err != nil {
		return dst, err
	}
	text, raw, err := e.measure(f)
	if err != nil {
		return dst, err
	}
	if err := e.limits.frame(text + raw); err != nil {
		return dst, err
	}
	dst = binary.AppendUvarint(dst, uint64(text))
	dst = binary.AppendUvarint(dst, uint64(raw))
	dst = slices.Grow(dst, text+raw+n*(width+8)) // seldom too little
	for _, h := range f.Hashes() {
		dst = binary.LittleEndian.AppendUint64(dst, h)
	}
	e.text, e.raw, e.codecs = e.text[:0], e.raw[:0], e.codecs[:0]
	vals := f.Values()
	for c, kind := range e.kinds {
		if dst, err = e.column(dst, vals[c:], width, kind); err != nil {
			return dst, inField(f.Stream, c, err)
		}
	}
	dst = append(dst, e.text...)
	return append(dst, e.raw...), nil
}

func header(dst []byte, f *tuple.Frame) ([]byte, error) {
	if f.Stream == nil && f.Len() > 0 {
		return dst, fmt.Errorf("it has %d tuples", f.Len())
	}
	if f.SourceTask < 0 {
		return dst, fmt.Errorf("its source is task %d", f.SourceTask)
	}
	flags := byte(0)
	if f.Stream != nil {
		flags |= flagStream
		if f.Keyed() {
			flags |= flagKeyed
		}
	}
	if f.Mark.Kind != tuple.MarkNone {
		flags |= flagMark
	}
	dst = append(dst, version, flags)
	dst = binary.AppendUvarint(dst, uint64(f.Generation))
	dst = binary.AppendUvarint(dst, f.Seq)
	dst = binary.AppendUvarint(dst, uint64(f.SourceTask))
	if f.Stream != nil {
		dst = appendText(dst, f.Stream.Component)
		dst = appendText(dst, f.Stream.ID)
		dst = binary.AppendUvarint(dst, uint64(f.Width()))
	}
	if f.Mark.Kind != tuple.MarkNone {
		dst = append(dst, byte(f.Mark.Kind))
		dst = binary.AppendUvarint(dst, uint64(f.Mark.Batch))
		dst = binary.AppendUvarint(dst, f.Mark.Count)
	}
	return dst, nil
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// measure finds the kinds of the columns and how many bytes of text there are.
func (e *Encoder) measure(f *tuple.Frame) (text, raw int, err error) {
	e.kinds = e.kinds[:0]
	vals, width := f.Values(), f.Width()
	for c := range width {
		first := vals[c].Kind()
		kind := byte(first)
		for i := c; i < len(vals); i += width {
			k := vals[i].Kind()
			if k != first {
				kind = mixed
			}
			if k != tuple.KindString && k != tuple.KindBytes {
				continue
			}
			s, _ := vals[i].Text()
			if err := e.limits.value(uint64(len(s))); err != nil {
				return 0, 0, inField(f.Stream, c, err)
			}
			if k == tuple.KindString {
				text += len(s)
			} else {
				raw += len(s)
			}
		}
		e.kinds = append(e.kinds, kind)
	}
	return text, raw, nil
}

// column appends the column that vals begins with. The kinds that hot streams are
// made of have loops of their own.
func (e *Encoder) column(dst []byte, vals []tuple.Value, width int, kind byte) ([]byte, error) {
	dst = append(dst, kind)
	var err error
	switch tuple.Kind(kind) {
	case tuple.KindString:
		for i := 0; i < len(vals); i += width {
			s, _ := vals[i].Text()
			dst = binary.AppendUvarint(dst, uint64(len(s)))
			e.text = append(e.text, s...)
		}
	case tuple.KindInt64:
		for i := 0; i < len(vals); i += width {
			dst = binary.AppendVarint(dst, int64(vals[i].Word()))
		}
	case mixed:
		for i := 0; i < len(vals); i += width {
			dst = append(dst, byte(vals[i].Kind()))
		}
		fallthrough
	default:
		for i := 0; i < len(vals) && err == nil; i += width {
			dst, err = e.value(dst, vals[i])
		}
	}
	return dst, err
}

func (e *Encoder) value(dst []byte, v tuple.Value) ([]byte, error) {
	switch v.Kind() {
	case tuple.KindNil:
	case tuple.KindBool:
		dst = append(dst, byte(v.Word()))
	case tuple.KindInt64:
		dst = binary.AppendVarint(dst, int64(v.Word()))
	case tuple.KindUint64:
		dst = binary.AppendUvarint(dst, v.Word())
	case tuple.KindFloat64, tuple.KindTime:
		dst = binary.LittleEndian.AppendUint64(dst, v.Word())
	case tuple.KindString:
		s, _ := v.Text()
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		e.text = append(e.text, s...)
	case tuple.KindBytes:
		s, _ := v.Text()
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		e.raw = append(e.raw, s...)
	case tuple.KindAny:
		return e.any(dst, v.Any())
	}
	return dst, nil
}

func (e *Encoder) any(dst []byte, v any) ([]byte, error) {
	codec, err := e.registry.codecOf(v)
	if err != nil {
		return dst, err
	}
	if e.object, err = codec.encode(e.object[:0], v); err != nil {
		return dst, fmt.Errorf("codec %q of %s: %w", codec.name, codec.typ, err)
	}
	if err := e.limits.value(uint64(len(e.object))); err != nil {
		return dst, fmt.Errorf("codec %q of %s: %w", codec.name, codec.typ, err)
	}
	at := slices.Index(e.codecs, codec)
	dst = binary.AppendUvarint(dst, uint64(at+1))
	if at < 0 {
		e.codecs = append(e.codecs, codec)
		dst = appendText(dst, codec.name)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.object)))
	return append(dst, e.object...), nil
}

func inField(s *tuple.Stream, column int, err error) error {
	return fmt.Errorf("field %q: %w", s.Fields[column], err)
}
