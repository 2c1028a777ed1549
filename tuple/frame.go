package tuple

// Fields names the fields of a stream, in order.
type Fields []string

// Index returns the position of a field, or -1.
func (f Fields) Index(name string) int {
	for i, n := range f {
		if n == name {
			return i
		}
	}
	return -1
}

// DefaultStream is the id of the stream that Emit writes to.
const DefaultStream = "default"

// Stream describes one output stream of a component. It is shared by all tasks
// and never changes once a topology is built.
type Stream struct {
	Component string // the component that emits it
	ID        string // its name, DefaultStream if none was given
	Fields    Fields
	// Kinds are those of the fields, KindAny standing for every kind; nil if the
	// fields are not typed.
	Kinds []Kind
	// Direct streams have their receiving task named by the emitter.
	Direct bool
}

// MarkKind says what a mark in a channel means.
type MarkKind uint8

// The marks. MarkBarrier closes a batch and the stream of tuples goes on;
// MarkLastBarrier closes the last batch before an orderly stop; MarkEnd closes the
// last batch because all input has ended, which flushes whatever waits for more
// input. MarkWatermark tells the event time that the sender has reached; MarkIdle that
// it has none to tell until its next watermark. These two close nothing.
const (
	MarkNone        MarkKind = 0
	MarkBarrier     MarkKind = 1
	MarkLastBarrier MarkKind = 2
	MarkEnd         MarkKind = 3
	MarkIdle        MarkKind = 4
	MarkWatermark   MarkKind = 5
)

// Mark is what a frame may carry behind its tuples, in band: mostly a barrier.
type Mark struct {
	Kind  MarkKind
	Batch BatchID
	// Count is how many tuples the sender put on this channel since its last
	// barrier. A receiver that counted otherwise has lost or doubled something. In a
	// watermark it is the event time, an int64 of milliseconds since 1970.
	Count uint64
}

// Frame is a slab of tuples of one stream on one channel, in the order in which
// they were emitted, with an optional mark behind them. Frames are recycled: the
// sender owns a frame until it is sent, the receiver until it is returned, and
// what a tuple of the frame refers to is overwritten after that.
type Frame struct {
	Generation Generation
	Seq        uint64 // position in the channel, from 1
	SourceTask int32  // topology-wide id of the sending task
	Stream     *Stream
	Mark       Mark

	// Tuples are written by index into vals and hashes, which are as long as there is
	// room for, so that adding one changes n alone.
	n      int
	room   int // tuples that fit
	width  int
	keyed  bool
	vals   []Value  // room*width values
	hashes []uint64 // room carried hashes, if keyed
	arena  []byte   // bytes of KindBytes values
	owned  int      // how many bytes were copied
}

// Len returns the number of tuples.
func (f *Frame) Len() int { return f.n }

// Width returns the number of values of each tuple.
func (f *Frame) Width() int { return f.width }

// Keyed reports whether every tuple carries the hash of its grouping fields.
func (f *Frame) Keyed() bool { return f.keyed }

// Hashes returns the carried hashes, one a tuple; nil if the frame is not keyed.
func (f *Frame) Hashes() []uint64 {
	if !f.keyed {
		return nil
	}
	return f.hashes[:f.n]
}

// Row returns the values of tuple i. The slice is the frame's own.
func (f *Frame) Row(i int) []Value {
	return f.vals[i*f.width : (i+1)*f.width : (i+1)*f.width]
}

// Values returns the values of all tuples, one tuple after the other. The slice is
// the frame's own.
func (f *Frame) Values() []Value { return f.vals[:f.n*f.width] }

// Begin makes an empty frame ready for tuples of a stream.
func (f *Frame) Begin(s *Stream, keyed bool) {
	f.Stream = s
	f.width = len(s.Fields)
	f.keyed = keyed
	f.room = 0
}

// fit computes the room of the memory that the frame has.
func (f *Frame) fit() {
	f.room = len(f.vals)
	if f.width > 1 {
		f.room = len(f.vals) / f.width
	}
	if f.keyed {
		f.room = min(f.room, len(f.hashes))
	}
}

// Full reports whether there is no room for another tuple. A frame has room for none
// after Begin; see Grow.
func (f *Frame) Full() bool { return f.n >= f.room }

// bytesFull is how many bytes of its own a frame holds at most, but for its last
// tuple: frames of large tuples hold few of them.
const bytesFull = 256 << 10

// Grow makes room for at least one more tuple, but for no more than limit in all. It
// returns false if the frame holds that many, or too many bytes.
func (f *Frame) Grow(limit int) bool {
	if f.n >= limit || f.owned >= bytesFull {
		return false
	}
	f.reserve(min(max(2*f.n, 64), limit))
	f.room = min(f.room, limit)
	return true
}

// reserve makes room for that many tuples in all.
func (f *Frame) reserve(room int) {
	if need := room * max(f.width, 1); need > len(f.vals) {
		vals := make([]Value, need)
		copy(vals, f.vals[:f.n*f.width])
		f.vals = vals
	}
	if f.keyed && room > len(f.hashes) {
		hashes := make([]uint64, room)
		copy(hashes, f.hashes[:f.n])
		f.hashes = hashes
	}
	f.fit()
}

// Extend appends n tuples and returns their values, one tuple after the other, and
// their hashes if the frame is keyed. The caller sets every one of them, bytes to what
// Copy returned: until then they are what the frame held before.
func (f *Frame) Extend(n int) (vals []Value, hashes []uint64) {
	at := f.n
	f.reserve(at + n)
	f.n += n
	if f.keyed {
		hashes = f.hashes[at:f.n]
	}
	return f.vals[at*f.width : f.n*f.width], hashes
}

// Copy copies b into the frame. The copy is valid as long as the frame's tuples are.
func (f *Frame) Copy(b []byte) []byte { return f.own(Bytes(b)).Bytes() }

// Append1 appends a tuple of one value with its carried hash. There must be room, as
// for the other Appends.
func (f *Frame) Append1(v Value, hash uint64) {
	if v.isBytes() {
		v = f.own(v)
	}
	f.vals[f.n] = v
	if f.keyed {
		f.hashes[f.n] = hash
	}
	f.n++
}

// Append2 appends a tuple of two values with its carried hash.
func (f *Frame) Append2(v, w Value, hash uint64) {
	row := f.vals[2*f.n : 2*f.n+2]
	if v.isBytes() {
		v = f.own(v)
	}
	if w.isBytes() {
		w = f.own(w)
	}
	row[0], row[1] = v, w
	if f.keyed {
		f.hashes[f.n] = hash
	}
	f.n++
}

// Append appends a tuple; len(vals) must be the frame's width. Bytes are copied.
func (f *Frame) Append(vals []Value, hash uint64) {
	row := f.Row(f.n)
	for i, v := range vals {
		if v.isBytes() {
			v = f.own(v)
		}
		row[i] = v
	}
	if f.keyed {
		f.hashes[f.n] = hash
	}
	f.n++
}

// own copies bytes into the frame. When the arena grows, earlier values go on
// pointing into the old array, which lives as long as they do.
func (f *Frame) own(v Value) Value {
	b := v.Bytes()
	if cap(f.arena)-len(f.arena) < len(b) {
		f.arena = make([]byte, 0, max(2*cap(f.arena), len(b), 4096))
	}
	if f.owned += len(b); f.owned >= bytesFull {
		f.room = f.n + 1
	}
	at := len(f.arena)
	f.arena = append(f.arena, b...)
	return Bytes(f.arena[at:len(f.arena):len(f.arena)])
}

// Reset empties the frame for reuse; it keeps its memory.
func (f *Frame) Reset() {
	f.n = 0
	f.room = 0
	f.arena = f.arena[:0]
	f.owned = 0
	f.Mark = Mark{}
	f.Stream = nil
}

// poisonText is what a tuple holds that was kept longer than it was valid.
const poisonText = "isobar: tuple used after Execute returned; Clone it to keep it"

// Poison overwrites everything the frame's tuples refer to, so that a tuple kept
// too long shows at once. The debug mode calls it before Reset.
func (f *Frame) Poison() {
	for i := range f.vals {
		f.vals[i] = String(poisonText)
	}
	for i := range f.hashes {
		f.hashes[i] = 0xdeaddeaddeaddead
	}
	arena := f.arena[:cap(f.arena)]
	for i := range arena {
		arena[i] = 0xdb
	}
}
