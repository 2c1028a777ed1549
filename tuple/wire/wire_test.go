package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

func TestFramesComeBackAsTheyWere(t *testing.T) {
	e, d := wire.NewEncoder(registry(t), wire.Limits{}), newDecoder(t, wire.Limits{})
	var back tuple.Frame // used again and again
	for name, f := range samples() {
		data, err := e.Append([]byte("before"), f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		data = bytes.TrimPrefix(data, []byte("before"))
		if err := d.Decode(data, &back); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := differ(f, &back); diff != "" {
			t.Errorf("%s: it was and is: %s", name, diff)
		}
		if again, err := e.Append(nil, &back); err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s: it encodes as\n%x\nand again as\n%x (%v)", name, data, again, err)
		}
	}
}

// What a receiver may keep must not change when link and frame go on.
func TestDecodedFrameSharesNothingWithItsInput(t *testing.T) {
	e, d := wire.NewEncoder(registry(t), wire.Limits{}), newDecoder(t, wire.Limits{})
	data, err := e.Append(nil, frame(counts, true, row("string", []byte("bytes")), row("", []byte("more"))))
	if err != nil {
		t.Fatal(err)
	}
	var f tuple.Frame
	if err := d.Decode(data, &f); err != nil {
		t.Fatal(err)
	}
	clear(data)
	str, raw := f.Row(0)[0].Str(), f.Row(0)[1].Bytes()
	if str != "string" || string(raw) != "bytes" || f.Row(1)[1].Str() != "more" {
		t.Errorf("the frame holds %v %v", f.Row(0), f.Row(1))
	}
	if longer := append(raw, '!'); len(longer) != 6 || f.Row(1)[1].Str() != "more" {
		t.Error("appending to one value changed the next")
	}
	f.Poison()
	f.Reset()
	if str != "string" {
		t.Errorf("the string became %q", str)
	}
}

func TestDecodingAllocatesOnePerFrame(t *testing.T) {
	e, d := wire.NewEncoder(registry(t), wire.Limits{}), newDecoder(t, wire.Limits{})
	var rows [][]tuple.Value
	for i := range 1024 {
		rows = append(rows, row("word", i, []byte("bytes"), 0.5))
	}
	f := frame(wide, true, rows...)
	data, err := e.Append(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	var back tuple.Frame
	n := testing.AllocsPerRun(20, func() {
		if err := d.Decode(data, &back); err != nil {
			t.Fatal(err)
		}
	})
	if n != 1 {
		t.Errorf("decoding made %v allocations", n)
	}
	n = testing.AllocsPerRun(20, func() {
		if data, err = e.Append(data[:0], f); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("encoding made %v allocations", n)
	}
}

func TestFramesThatCannotBeEncoded(t *testing.T) {
	small := wire.Limits{FrameBytes: 100, Values: 8, ValueBytes: 40}
	noStream := frame(words, false, row("x"))
	noStream.Stream = nil
	noTask := frame(words, false)
	noTask.SourceTask = -1
	for _, c := range []struct {
		f    *tuple.Frame
		want string
	}{
		{frame(counts, false, row("x", struct{ A int }{1})),
			`encode a frame of count/default: field "n": no codec is registered for type struct { A int }: register one, or emit its parts`},
		{frame(words, false, row((*point)(nil))), "no codec is registered for type *wire_test.point"},
		{frame(words, false, row(point{-1, 0})), `field "word": codec "point" of wire_test.point: it lies outside`},
		{frame(words, false, row(strings.Repeat("x", 41))), `field "word": a value of 41 bytes: at most 40 are allowed`},
		{frame(words, false, row(label(strings.Repeat("x", 41)))), `codec "label" of wire_test.label: a value of 41 bytes: at most 40`},
		{frame(counts, false, row(1, 2), row(1, 2), row(1, 2), row(1, 2), row(1, 2)), "5 tuples of 2 fields: a frame holds at most 8 values"},
		{frame(words, false, row(strings.Repeat("x", 40)), row(strings.Repeat("x", 40)), row("x")), "at most 100 are allowed"},
		{frame(words, false, row(strings.Repeat("x", 40)), row(strings.Repeat("x", 40)), row(strings.Repeat("x", 40))), "a frame of 120 bytes"},
		{noStream, "encode a frame of no stream: it has 1 tuples"},
		{noTask, "its source is task -1"},
	} {
		dst := []byte("as given")
		out, err := wire.NewEncoder(registry(t), small).Append(dst, c.f)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
		if string(out) != "as given" {
			t.Errorf("Append returned %q with its error", out)
		}
	}
}

func TestBadBytesAreRefused(t *testing.T) {
	body := func(parts ...any) []byte {
		var b []byte
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				b = append(b, byte(p))
			case string:
				b = append(b, p...)
			}
		}
		return signed(b)
	}
	// Up to the number of tuples: version, flags, generation, seq, source, names, width.
	const wordsHead = "\x01\x02\x01\x01\x00\x05split\x07default\x01"
	const ticksHead = "\x01\x02\x01\x01\x00\x05clock\x04tick\x00"
	small := wire.Limits{FrameBytes: 1000, Values: 8, ValueBytes: 40}
	ok := body(wordsHead, 1, 1, 0, 5, 1, "x")
	if err := newDecoder(t, small).Decode(ok, &tuple.Frame{}); err != nil {
		t.Fatalf("the frame that the others differ from: %v", err)
	}
	flipped := bytes.Clone(ok)
	flipped[len(flipped)-6] ^= 1
	for _, c := range []struct {
		data    []byte
		want    string
		foreign bool // not damaged: this process lacks something, or a limit says no
	}{
		{nil, "too short", false},
		{ok[:len(ok)-1], "checksum", false},
		{flipped, "checksum", false},
		{body(1), "too short", false},
		{body(0, 0, 0, 0, 0, 0), "version is 0", false},
		{body(2, 0, "whatever"), "it has format version 2, this process reads up to version 1", true},
		{body(1, 8, 1, 1, 0, 0), "flags", false},
		{body(1, 1, 1, 1, 0, 0), "flags", false},
		{body(1, 0, 1, 1, "\x80\x80\x80\x80\x08", 0), "wrong number", false}, // task 2^31
		{body(1, 0, 1, 1, "\x80\x00", 0), "wrong number", false},             // 0 in two bytes
		{body(1, 0, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 0, 0), "wrong number", false},
		{body(1, 0, 1, 1, 0), "wrong number", false},
		{body(1, 0, 1, 1, 0, 0, 0), "behind its tuples", false},
		{body(1, 0, 1, 1, 0, 1, 0, 0, 0), "no stream", false},
		{body(1, 4, 1, 1, 0, 0, 1, 0, 0), "mark is of no kind", false},
		{body(1, 4, 1, 1, 0, 6, 1, 0, 0), "mark is of no kind", false},
		{body(1, 2, 1, 1, 0, 5, "split"), "wrong number", false},
		{body(1, 2, 1, 1, 0, 200, 1, "split"), "too short", false},
		{body(1, 2, 1, 1, 0, 5, "spilt", 7, "default", 1, 0), "stream spilt/default is not one", true},
		{body(1, 2, 1, 1, 0, 5, "split", 7, "default", 2, 0), "split/default has 1 fields here and 2 where", true},
		{body(wordsHead, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, 0), "at most 8 values", true},
		{body(wordsHead, 9, 0, 0), "at most 8 values", true},
		{body(ticksHead, 9, 0, 0), "at most 8 values", true},
		{body(wordsHead, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, 5, 1, "x"), "too short for its tuples", false},
		{body(wordsHead, 1, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 5, 1, "x"), "too short for its tuples", false},
		{body(wordsHead, 1, 0, 0), "too short for its tuples", false},
		{body(wordsHead, 1, 1, 0, 5, 2, "x"), "text is too short", false},
		{body(wordsHead, 1, 0, 1, 6, 2, "x"), "text is too short", false},
		{body(wordsHead, 1, 0, 1, 5, 1, "x"), "text is too short", false},
		{body(wordsHead, 1, 2, 0, 5, 1, "xy"), "belongs to no value", false},
		{body(wordsHead, 1, 1, 0, 5, 41, "x"), "a value of 41 bytes: at most 40", true},
		{body(wordsHead, 1, 1, 0, 5, 1, 1, "x"), "behind its tuples", false},
		{body(wordsHead, 1, 0, 0, 9), "unknown kind", false},
		{body(wordsHead, 1, 0, 0, 1, 2), "bool", false},
		{body(wordsHead, 1, 0, 0, 4, "1234567"), "too short", false},
		{body(wordsHead, 2, 0, 0, 2, 1), "wrong number", false},
		{body(wordsHead, 2, 0, 0, 255, 2, 2, 1, 1), "mixed column has one kind", false},
		{body(wordsHead, 2, 0, 0, 255, 2), "too short", false},
		{body(wordsHead, 1, 0, 0, 255, 2, 1), "mixed column has one kind", false},
		{body(wordsHead, 1, 0, 0, 8, 0, 6, "poynt!", 0), `no codec "poynt!" is registered`, true},
		{body(wordsHead, 1, 0, 0, 8, 0, 5, "point", 7, "1234567"), `codec "point" of wire_test.point: it has 7 bytes, not 8`, true},
		{body(wordsHead, 1, 0, 0, 8, 0, 5, "point", 8, "1234567"), "too short", false},
		{body(wordsHead, 1, 0, 0, 8, 0, 5, "label", 41), "a value of 41 bytes", true},
		{body(wordsHead, 1, 0, 0, 8, 1, 0), "wrong number", false}, // no codec was named
		{body(wordsHead, 2, 0, 0, 8, 0, 5, "label", 0, 0, 5, "label", 0), "names a codec twice", false},
		{body(wordsHead, 1, 0, 0, 8, 0, 4, "time", 12, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "which tuples hold unboxed", true},
		{body(wordsHead, 1, 0, 0, 8, 0, 4, "time", 12, "\x00\x00\x00\x00\x00\x00\x00\x80\xff\xff\xff\xff"), "nanoseconds in a second", true},
		{make([]byte, 1001), "a frame of 1001 bytes: at most 1000", true},
	} {
		f := frame(words, true, row("old"))
		f.Mark.Kind = tuple.MarkEnd
		err := newDecoder(t, small).Decode(c.data, f)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: the error is %v, want %s", c.data, err, c.want)
			continue
		}
		if errors.Is(err, wire.ErrDamaged) == c.foreign {
			t.Errorf("%v: damaged %t", err, !c.foreign)
		}
		if f.Len() != 0 || f.Mark.Kind != tuple.MarkNone {
			t.Errorf("%v: the frame is not empty", err)
		}
	}
}

// A few bytes must not make the receiver allocate much.
func TestClaimsAllocateNothing(t *testing.T) {
	d := newDecoder(t, wire.Limits{})
	huge := "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
	for _, body := range []string{
		"\x01\x02\x01\x01\x00\x05split\x07default\x01" + huge + "\x00\x00\x00",
		"\x01\x03\x01\x01\x00\x05split\x07default\x01\xff\xff\x3f\x00\x00\x00", // 2^20-1 keyed tuples
		"\x01\x02\x01\x01\x00\x05split\x07default\x01\x01" + huge + "\x00\x05\x00",
		"\x01\x02\x01\x01\x00\x05split\x07default\x01\x01\x00" + huge + "\x05\x00",
		"\x01\x02\x01\x01\x00" + huge,
		"\x01\x02\x01\x01\x00\x05split\x07default\x01\x01\x00\x00\x08\x00" + huge,
	} {
		data := signed([]byte(body))
		var f tuple.Frame
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := d.Decode(data, &f)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%x was taken for a frame", data)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<10 {
			t.Errorf("%v: %d bytes were allocated", err, n)
		}
	}
}

func TestRegistryTellsEveryMistake(t *testing.T) {
	number := func(name string) wire.Codec {
		return wire.Object(name, func(b []byte, _ int) ([]byte, error) { return b, nil }, func([]byte) (int, error) { return 0, nil })
	}
	object := func(name string) wire.Codec {
		return wire.Object(name, func(b []byte, _ point) ([]byte, error) { return b, nil }, func([]byte) (point, error) { return point{}, nil })
	}
	face := wire.Object("error", func(b []byte, _ error) ([]byte, error) { return b, nil }, func([]byte) (error, error) { return nil, nil })
	clock := wire.Object("time", func(b []byte, _ time.Time) ([]byte, error) { return b, nil }, func([]byte) (time.Time, error) { return time.Time{}, nil })
	_, err := wire.NewRegistry(number("n"), object("p"), object("q"), face, clock, wire.Object("",
		func(b []byte, _ label) ([]byte, error) { return b, nil }, func([]byte) (label, error) { return "", nil }))
	for _, want := range []string{
		`codec "n" of int: tuples hold no objects of this type`,
		`codec "q" of wire_test.point: the type has the codec "p"`,
		`codec "error" of error: tuples hold no objects of this type`,
		`codec "time" of time.Time: the name is that of the codec of time.Time`,
		`codec of wire_test.label: it has no name`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s but %v", want, err)
		}
	}
	twin := *words
	if _, err := wire.NewDecoder([]*tuple.Stream{words, words, &twin}, registry(t), wire.Limits{}); err == nil ||
		!strings.Contains(err.Error(), "stream split/default is given twice") {
		t.Errorf("two streams of one name: %v", err)
	}
}

// The bytes of the example in the documentation are those of the code.
func TestDocumentedExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format/frame.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(doc), "## Example")
	if !ok {
		t.Fatal("docs/format/frame.md has no example")
	}
	var text strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^((?:[0-9a-f]{2} )+) `).FindAllStringSubmatch(example, -1) {
		text.WriteString(strings.ReplaceAll(m[1], " ", ""))
	}
	documented, err := hex.DecodeString(text.String())
	if err != nil {
		t.Fatal(err)
	}
	f := &tuple.Frame{Generation: 4, Seq: 300, SourceTask: 1, Mark: tuple.Mark{Kind: tuple.MarkBarrier, Batch: 17, Count: 514}}
	f.Begin(counts, true)
	f.Grow(2)
	for _, r := range [][]tuple.Value{row("the", 63919), row("word", -1)} {
		h, _ := r[0].Hash()
		f.Append(r, h)
	}
	data, err := wire.NewEncoder(registry(t), wire.Limits{}).Append(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, documented) {
		t.Errorf("the documentation says\n%x\nand the code\n%x", documented, data)
	}
}

func TestLimitsHoldTheLargestUsualFrame(t *testing.T) {
	l := wire.DefaultLimits()
	if l.Values < 1024*1024 || l.ValueBytes > l.FrameBytes || l.FrameBytes > math.MaxInt32 {
		t.Errorf("%+v", l)
	}
}
