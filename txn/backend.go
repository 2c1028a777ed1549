package txn

// StateMeta describes one named state of a keyed component. Checkpoints keep it, so
// that state can be read without the topology's code.
type StateMeta struct {
	ID      uint16 `json:"id"`      // the number that stands for the name in keys; never reused
	Name    string `json:"name"`    // as registered by the bolt
	Kind    string `json:"kind"`    // "value", "aggregate", "map", "list", these with "+ttl", or "timer"
	Codec   string `json:"codec"`   // name of the codec or the aggregator; of a map "[KEY.VERSION]VALUE"
	Version uint8  `json:"version"` // version of the codec that writes now
}

// State keys order by key group, then by state, then by key:
//
//	2 bytes  key group, big endian
//	2 bytes  state id, big endian
//	rest     depends on the kind of state:
//
//	value, aggregate   the key as encoded by tuple.AppendKey
//	map                the key as encoded by tuple.AppendDelimited, then the map key as
//	                   its codec encodes it: one row for each entry
//	list               the key as encoded by tuple.AppendDelimited, then nothing: the
//	                   number of elements; or 8 bytes, big endian: the element of that
//	                   index, from 0
//	timer              8 bytes, big endian, sign bit flipped: when, in milliseconds since
//	                   1970; then the key as encoded by tuple.AppendDelimited, then the
//	                   timer's name
//
// Values begin with a byte of the state kind's own (codec version, the kind of
// aggregate, 1 for a timer), for the kinds with TTL followed by 8 bytes, big endian:
// the expiry in milliseconds since 1970; then comes the payload. The payload of the
// number of elements is 8 bytes, big endian; that of a timer is empty.
const stateKeyPrefix = 4

// AppendStateKey appends the state key of an encoded key to dst.
func AppendStateKey(dst []byte, group int, state uint16, key []byte) []byte {
	dst = append(dst, byte(group>>8), byte(group), byte(state>>8), byte(state))
	return append(dst, key...)
}

// SplitStateKey takes a state key apart. ok is false if it is too short.
func SplitStateKey(k []byte) (group int, state uint16, key []byte, ok bool) {
	if len(k) < stateKeyPrefix {
		return 0, 0, nil, false
	}
	return int(k[0])<<8 | int(k[1]), uint16(k[2])<<8 | uint16(k[3]), k[stateKeyPrefix:], true
}

// Record is one change of one state key: a new value, its deletion, or what is to be
// combined with the value that it has.
type Record struct {
	Key    []byte // state key
	Value  []byte // nil when Delete
	Delete bool
	Merge  bool // Value is to be combined with what the key has, by MergeValues
}

// Cut holds everything that one task's keyed state changed in one batch: each state
// key at most once, in no order. It shares nothing with the live state.
type Cut struct {
	Batch   BatchID
	Records []Record
	// Shrunk says that much of what the state held has expired and is deleted by now,
	// in this cut or earlier ones, so that to write it anew would save room.
	Shrunk bool
}

// Backend is what lies below the in-memory state of a task: the state as of the
// cuts that were applied to it. Its methods are called on the task's goroutine while
// cuts are applied on another.
type Backend interface {
	// Get returns the value of a state key, nil if it has none, exactly as of a batch
	// that was applied, and which that is: no older than the newest one that was applied
	// when it was called. The slice is the caller's.
	Get(key []byte) (value []byte, asOf BatchID, err error)
	// Range calls fn for each state key in [from, to), in order, as of one moment; a to
	// of nil means to the end. Both slices are valid during the call. fn must not use
	// the backend. An error of fn ends the scan and is returned.
	Range(from, to []byte, fn func(key, value []byte) error) error
	// Empty reports whether it never held a key, so that Get and Range need not be asked.
	Empty() bool
}

// View reads the keyed state of a task exactly as of one batch.
type View interface {
	// Scan calls fn for each key of the named state, ordered by key group and key.
	// key is as encoded by tuple.AppendKey; both slices are valid during the call.
	Scan(state string, fn func(key, value []byte) error) error
}
