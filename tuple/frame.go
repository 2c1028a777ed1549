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
}

// MarkKind says what a mark in a channel means.
type MarkKind uint8

// The marks. MarkBarrier closes a batch and the stream of tuples goes on;
// MarkLastBarrier closes the last batch before an orderly stop; MarkEnd closes the
// last batch because all input has ended, which flushes whatever waits for more
// input. MarkIdle and MarkWatermark are reserved for event time.
const (
	MarkNone        MarkKind = 0
	MarkBarrier     MarkKind = 1
	MarkLastBarrier MarkKind = 2
	MarkEnd         MarkKind = 3
	MarkIdle        MarkKind = 4
	MarkWatermark   MarkKind = 5
)

// Mark is what a frame may carry behind its tuples: a barrier, in band.
type Mark struct {
	Kind  MarkKind
	Batch BatchID
	// Count is how many tuples the sender put on this channel since its last
	// barrier. A receiver that counted otherwise has lost or doubled something.
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

	n      int
	width  int
	keyed  bool
	vals   []Value  // n*width values
	hashes []uint64 // n carried hashes when keyed
	arena  []byte   // bytes of KindBytes values
}

// Len returns the number of tuples.
func (f *Frame) Len() int { return f.n }

// Width returns the number of values of each tuple.
func (f *Frame) Width() int { return f.width }

// Keyed reports whether every tuple carries the hash of its grouping fields.
func (f *Frame) Keyed() bool { return f.keyed }

// Hashes returns the carried hashes, one a tuple; nil if the frame is not keyed.
func (f *Frame) Hashes() []uint64 { return f.hashes }

// Row returns the values of tuple i. The slice is the frame's own.
func (f *Frame) Row(i int) []Value {
	return f.vals[i*f.width : (i+1)*f.width : (i+1)*f.width]
}

// Begin makes an empty frame ready for tuples of a stream.
func (f *Frame) Begin(s *Stream, keyed bool) {
	f.Stream = s
	f.width = len(s.Fields)
	f.keyed = keyed
}

// Append1 appends a tuple of one value with its carried hash.
func (f *Frame) Append1(v Value, hash uint64) {
	if p, ok := v.any.(bytesptr); ok {
		v = f.own(p, v.num)
	}
	f.vals = append(f.vals, v)
	if f.keyed {
		f.hashes = append(f.hashes, hash)
	}
	f.n++
}

// Append2 appends a tuple of two values with its carried hash.
func (f *Frame) Append2(v, w Value, hash uint64) {
	if p, ok := v.any.(bytesptr); ok {
		v = f.own(p, v.num)
	}
	if p, ok := w.any.(bytesptr); ok {
		w = f.own(p, w.num)
	}
	f.vals = append(f.vals, v, w)
	if f.keyed {
		f.hashes = append(f.hashes, hash)
	}
	f.n++
}

// Append appends a tuple; len(vals) must be the frame's width. Bytes are copied.
func (f *Frame) Append(vals []Value, hash uint64) {
	for _, v := range vals {
		if p, ok := v.any.(bytesptr); ok {
			v = f.own(p, v.num)
		}
		f.vals = append(f.vals, v)
	}
	if f.keyed {
		f.hashes = append(f.hashes, hash)
	}
	f.n++
}

// own copies bytes into the frame. When the arena grows, earlier values go on
// pointing into the old array, which lives as long as they do.
func (f *Frame) own(p bytesptr, n uint64) Value {
	b := Value{num: n, any: p}.Bytes()
	if cap(f.arena)-len(f.arena) < len(b) {
		f.arena = make([]byte, 0, max(2*cap(f.arena), len(b), 4096))
	}
	at := len(f.arena)
	f.arena = append(f.arena, b...)
	return Bytes(f.arena[at:len(f.arena):len(f.arena)])
}

// Reset empties the frame for reuse; it keeps its memory.
func (f *Frame) Reset() {
	f.n = 0
	f.vals = f.vals[:0]
	f.hashes = f.hashes[:0]
	f.arena = f.arena[:0]
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
