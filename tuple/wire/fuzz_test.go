package wire_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// FuzzDecodeFrame gives the decoder any bytes, with a right checksum behind them. It
// must refuse them or find a frame of which they are the encoding, and it must not
// allocate out of proportion.
func FuzzDecodeFrame(f *testing.F) {
	limits := wire.Limits{FrameBytes: 1 << 20, Values: 1 << 12, ValueBytes: 1 << 16}
	e, d := wire.NewEncoder(registry(f), limits), newDecoder(f, limits)
	for _, s := range samples() {
		data, err := e.Append(nil, s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := signed(body)
		var got tuple.Frame
		most := uint64(limits.Values*32 + 16*len(data) + 64<<10)
		n, err := decodeCounting(d, data, &got)
		for again := 0; n > most && again < 10; again++ { // others may have allocated too
			got = tuple.Frame{}
			n, err = decodeCounting(d, data, &got)
		}
		if n > most {
			t.Fatalf("%d bytes were allocated, more than %d (%v)", n, most, err)
		}
		if err != nil {
			if got.Len() != 0 {
				t.Fatalf("%v, and the frame has %d tuples", err, got.Len())
			}
			return
		}
		again, err := e.Append(nil, &got)
		if err != nil || !bytes.Equal(data, again) {
			t.Fatalf("decoded and encoded again:\n%x\n%x (%v)", data, again, err)
		}
	})
}

// decodeCounting decodes and returns how many bytes the process allocated meanwhile.
func decodeCounting(d *wire.Decoder, data []byte, f *tuple.Frame) (uint64, error) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	before := s[0].Value.Uint64()
	err := d.Decode(data, f)
	metrics.Read(s)
	return s[0].Value.Uint64() - before, err
}

// FuzzRoundTrip makes a frame of what it is given; it must come back as it was.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("\x02\x01\x00abc\x01\x02\x03\x04\x05\x06\x07\x08\x09"), uint64(1), uint64(2), uint8(1))
	f.Add(bytes.Repeat([]byte{5, 3, 'a', 'b', 'c', 2, 200, 1}, 20), uint64(math.MaxUint64), uint64(0), uint8(3))
	f.Add(bytes.Repeat([]byte{4, 0xff, 7, 0x80, 6, 1, 0, 8, 9, 0}, 9), uint64(3), uint64(math.MaxUint64), uint8(0))
	f.Fuzz(func(t *testing.T, script []byte, generation, seq uint64, marks uint8) {
		e, d := wire.NewEncoder(registry(t), wire.Limits{}), newDecoder(t, wire.Limits{})
		s := all[int(marks>>4)%len(all)]
		in := &tuple.Frame{Generation: tuple.Generation(generation), Seq: seq, SourceTask: int32(seq >> 33)}
		in.Begin(s, marks&8 != 0)
		if kind := tuple.MarkKind(marks & 7); kind <= tuple.MarkWatermark && kind > 0 {
			in.Mark = tuple.Mark{Kind: kind, Batch: tuple.BatchID(seq), Count: generation}
		}
		for len(script) > 0 && in.Len() < 5000 {
			vals := make([]tuple.Value, in.Width())
			for i := range vals {
				vals[i], script = draw(script)
			}
			if in.Width() == 0 {
				script = script[1:]
			}
			in.Grow(math.MaxInt)
			in.Append(vals, seq^uint64(in.Len()))
		}
		data, err := e.Append(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		var out tuple.Frame
		if err := d.Decode(data, &out); err != nil {
			t.Fatalf("%v: %x", err, data)
		}
		if diff := differ(in, &out); diff != "" {
			t.Fatalf("it was and is: %s", diff)
		}
		if len(data) > 0 {
			at := int(seq % uint64(len(data)))
			data[at] ^= 1 << (generation % 8)
			if err := d.Decode(data, &out); err == nil {
				t.Fatalf("a flipped bit in byte %d was not noticed", at)
			}
		}
	})
}

// draw makes a value of the first bytes of a script.
func draw(script []byte) (tuple.Value, []byte) {
	take := func(n int) []byte {
		n = min(n, len(script))
		b := script[:n]
		script = script[n:]
		return b
	}
	word := func() uint64 {
		var b [8]byte
		copy(b[:], take(8))
		return binary.LittleEndian.Uint64(b[:])
	}
	text := func() []byte {
		n := 0
		for _, b := range take(1) {
			n = int(b)
		}
		return take(n)
	}
	kind := byte(0)
	for _, b := range take(1) {
		kind = b % 12
	}
	switch kind {
	case 1:
		return tuple.Bool(word()&1 != 0), script
	case 2:
		return tuple.Int64(int64(word())), script
	case 3:
		return tuple.Uint64(word()), script
	case 4:
		return tuple.Float64(math.Float64frombits(word())), script
	case 5:
		return tuple.String(string(text())), script
	case 6:
		return tuple.Bytes(text()), script
	case 7:
		return tuple.Time(time.Unix(0, int64(word()))), script
	case 8:
		return tuple.Any(point{int32(word() >> 33), 7}), script
	case 9:
		return tuple.Any(label(text())), script
	case 10:
		return tuple.Time(time.Unix(int64(word()), 5)), script
	case 11:
		return tuple.Int64(int64(int8(word()))), script
	}
	return tuple.Value{}, script
}
