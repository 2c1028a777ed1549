package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/isobar-io/isobar/tuple"
)

// Decoder turns bytes back into frames. One goroutine uses it at a time.
type Decoder struct {
	registry *Registry
	limits   Limits
	streams  map[name]*tuple.Stream
	codecs   []*Codec // named in this frame so far
}

type name struct{ component, stream string }

// NewDecoder returns a Decoder of frames of these streams, with the objects of r.
func NewDecoder(streams []*tuple.Stream, r *Registry, l Limits) (*Decoder, error) {
	d := &Decoder{registry: r, limits: l.orDefault(), streams: map[name]*tuple.Stream{}}
	for _, s := range streams {
		n := name{s.Component, s.ID}
		if d.streams[n] != nil && d.streams[n] != s {
			return nil, fmt.Errorf("make a decoder of frames: stream %s is given twice", streamName(s))
		}
		d.streams[n] = s
	}
	return d, nil
}

// Decode makes f, which may have been used before, the frame that data encodes. f
// then shares nothing with data: its bytes values are in the frame's own memory, and
// its strings, valid for ever, are parts of one string with all text of the frame,
// which lives as long as any of them; clone a string that is kept for long.
//
// It checks everything that data says before it believes it, and allocates no more
// than the limits allow. On an error f is empty. A damaged frame is an [ErrDamaged];
// other errors say what this process lacks: a stream, a codec, a newer version.
func (d *Decoder) Decode(data []byte, f *tuple.Frame) error {
	f.Reset()
	if err := d.decode(data, f); err != nil {
		f.Reset()
		return fmt.Errorf("decode a frame of %d bytes: %w", len(data), err)
	}
	return nil
}

func (d *Decoder) decode(data []byte, f *tuple.Frame) error {
	if err := d.limits.frame(len(data)); err != nil {
		return err
	}
	end := len(data) - checksumBytes
	if end < 2 {
		return damaged("it is too short")
	}
	if crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]) {
		return damaged("its checksum is wrong")
	}
	switch v := data[0]; {
	case v == 0:
		return damaged("its version is 0")
	case v > version:
		return fmt.Errorf("it has format version %d, this process reads up to version %d: all processes of a topology must be of one isobar", v, version)
	}
	in := &input{rest: data[2:end]}
	if err := d.header(in, data[1], f); err != nil {
		return err
	}
	n := in.uvarint()
	if in.err != nil || n == 0 {
		return in.close()
	}
	if f.Stream == nil {
		return damaged("it has tuples of no stream")
	}
	if err := d.limits.values(n, uint64(f.Width())); err != nil {
		return err
	}
	if err := d.tuples(in, f, int(n)); err != nil {
		return fmt.Errorf("stream %s: %w", streamName(f.Stream), err)
	}
	return in.close()
}

func (d *Decoder) header(in *input, flags byte, f *tuple.Frame) error {
	if flags&^flagsKnown != 0 || flags&flagKeyed != 0 && flags&flagStream == 0 {
		return damaged("its flags are wrong")
	}
	f.Generation = tuple.Generation(in.uvarint())
	f.Seq = in.uvarint()
	f.SourceTask = int32(in.atMost(math.MaxInt32))
	if flags&flagStream != 0 {
		component, id := in.text(), in.text()
		width := in.uvarint()
		if in.err != nil {
			return in.err
		}
		s := d.streams[name{string(component), string(id)}]
		if s == nil {
			return fmt.Errorf("stream %.100s/%.100s is not one of those that this process reads", component, id)
		}
		if width != uint64(len(s.Fields)) {
			return fmt.Errorf("stream %s has %d fields here and %d where it comes from: all processes of a topology must run one program",
				streamName(s), len(s.Fields), width)
		}
		f.Begin(s, flags&flagKeyed != 0)
	}
	if flags&flagMark != 0 {
		kind := tuple.MarkKind(in.byte())
		f.Mark = tuple.Mark{Kind: kind, Batch: tuple.BatchID(in.uvarint()), Count: in.uvarint()}
		if kind == tuple.MarkNone || kind > tuple.MarkWatermark {
			in.fail("its mark is of no kind")
		}
	}
	return in.err
}

func (d *Decoder) tuples(in *input, f *tuple.Frame, n int) error {
	textBytes, rawBytes := in.uvarint(), in.uvarint()
	left := uint64(len(in.rest))
	hashBytes := uint64(0)
	if f.Keyed() {
		hashBytes = 8 * uint64(n)
	}
	// Each column has a byte; the values are made only once there is this much.
	if in.err != nil || textBytes > left || rawBytes > left-textBytes || left-textBytes-rawBytes < hashBytes+uint64(f.Width()) {
		return damaged("it is too short for its tuples")
	}
	columns := left - textBytes - rawBytes
	tail := in.rest[columns:]
	in.rest = in.rest[:columns]
	part := section{text: string(tail[:textBytes]), raw: f.Copy(tail[textBytes:])}
	d.codecs = d.codecs[:0]
	vals, hashes := f.Extend(n)
	for i := range hashes {
		hashes[i] = binary.LittleEndian.Uint64(in.rest[8*i:])
	}
	in.rest = in.rest[hashBytes:]
	for c := range f.Width() {
		if err := d.column(in, &part, vals[c:], f.Width()); err != nil {
			return inField(f.Stream, c, err)
		}
	}
	if len(part.text)+len(part.raw) > 0 {
		return damaged("it has text that belongs to no value")
	}
	return nil
}

// column fills the column that vals begins with.
func (d *Decoder) column(in *input, part *section, vals []tuple.Value, width int) error {
	switch kind := in.byte(); {
	case in.err != nil:
	case kind == mixed:
		return d.mixedColumn(in, part, vals, width)
	case tuple.Kind(kind) == tuple.KindString:
		return d.stringColumn(in, part, vals, width)
	case tuple.Kind(kind) == tuple.KindInt64:
		for i := 0; i < len(vals); i += width {
			vals[i] = tuple.Int64(in.varint())
		}
	default:
		for i := 0; i < len(vals); i += width {
			v, err := d.value(in, part, tuple.Kind(kind))
			if err != nil {
				return err
			}
			vals[i] = v
		}
	}
	return in.err
}

func (d *Decoder) stringColumn(in *input, part *section, vals []tuple.Value, width int) error {
	text := part.text
	for i := 0; i < len(vals); i += width {
		n := in.uvarint()
		if err := d.limits.value(n); err != nil {
			return err
		}
		if n > uint64(len(text)) {
			return damaged("its text is too short")
		}
		vals[i] = tuple.String(text[:n])
		text = text[n:]
	}
	part.text = text
	return in.err
}

func (d *Decoder) mixedColumn(in *input, part *section, vals []tuple.Value, width int) error {
	kinds := in.take(uint64((len(vals) + width - 1) / width))
	if in.err != nil {
		return in.err
	}
	uniform := true
	for at, kind := range kinds {
		uniform = uniform && kind == kinds[0]
		v, err := d.value(in, part, tuple.Kind(kind))
		if err != nil {
			return err
		}
		vals[at*width] = v
	}
	if uniform {
		return damaged("its mixed column has one kind")
	}
	return nil
}

func (d *Decoder) value(in *input, part *section, kind tuple.Kind) (tuple.Value, error) {
	v := tuple.Value{}
	switch kind {
	case tuple.KindNil:
	case tuple.KindBool:
		v = tuple.FromWord(kind, uint64(in.bool()))
	case tuple.KindInt64:
		v = tuple.Int64(in.varint())
	case tuple.KindUint64:
		v = tuple.Uint64(in.uvarint())
	case tuple.KindFloat64, tuple.KindTime:
		if b := in.take(8); b != nil {
			v = tuple.FromWord(kind, binary.LittleEndian.Uint64(b))
		}
	case tuple.KindString, tuple.KindBytes:
		n := in.uvarint()
		if err := d.limits.value(n); err != nil {
			return v, err
		}
		return part.take(kind, n)
	case tuple.KindAny:
		return d.any(in)
	default:
		in.fail("it has a value of an unknown kind")
	}
	return v, in.err
}

func (d *Decoder) any(in *input) (tuple.Value, error) {
	codec, err := d.codec(in)
	if err != nil {
		return tuple.Value{}, err
	}
	n := in.uvarint()
	if err := d.limits.value(n); err != nil {
		return tuple.Value{}, err
	}
	data := in.take(n)
	if in.err != nil {
		return tuple.Value{}, in.err
	}
	obj, err := codec.decode(data)
	if err != nil {
		return tuple.Value{}, fmt.Errorf("codec %q of %s: %w", codec.name, codec.typ, err)
	}
	v := tuple.Any(obj)
	if v.Kind() != tuple.KindAny {
		return v, fmt.Errorf("codec %q of %s: it decoded %s, which tuples hold unboxed", codec.name, codec.typ, v)
	}
	return v, nil
}

// codec reads which codec an object has: one named before in the frame, or a new one.
func (d *Decoder) codec(in *input) (*Codec, error) {
	at := in.atMost(uint64(len(d.codecs)))
	if at > 0 {
		return d.codecs[at-1], in.err
	}
	name := in.text()
	if in.err != nil {
		return nil, in.err
	}
	codec := d.registry.byName[string(name)]
	if codec == nil {
		return nil, fmt.Errorf("no codec %.100q is registered in this process: all processes of a topology must run one program", name)
	}
	for _, c := range d.codecs {
		if c == codec {
			return nil, damaged("it names a codec twice")
		}
	}
	d.codecs = append(d.codecs, codec)
	return codec, nil
}
