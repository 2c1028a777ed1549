package txn

// StateMeta describes one named state of a keyed component. Checkpoints keep it, so
// that state can be read without the topology's code.
type StateMeta struct {
	ID      uint16 `json:"id"`      // the number that stands for the name in keys; never reused
	Name    string `json:"name"`    // as registered by the bolt
	Kind    string `json:"kind"`    // "value" or "aggregate"
	Codec   string `json:"codec"`   // name of the codec or the aggregator
	Version uint8  `json:"version"` // version of the codec that writes now
}

// State keys order by key group, then by state, then by key:
//
//	2 bytes  key group, big endian
//	2 bytes  state id, big endian
//	rest     the key as encoded by tuple.AppendKey
//
// Values begin with a byte of the state kind's own (codec version, or the kind of
// aggregate) followed by the payload.
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

// Record is one change of one state key: a new value, or its deletion.
type Record struct {
	Key    []byte // state key
	Value  []byte // nil when Delete
	Delete bool
}

// Cut holds everything that one task's keyed state changed in one batch: each state
// key at most once, in no order. It shares nothing with the live state.
type Cut struct {
	Batch   BatchID
	Records []Record
}

// Backend is what lies below the in-memory state of a task: the state as of the
// cuts that were applied to it. Get is called on the task's goroutine while cuts
// are applied on another.
type Backend interface {
	// Get returns the value of a state key; the slice is the caller's.
	Get(key []byte) (value []byte, ok bool, err error)
	// Empty reports whether it never held a key, so that Get need not be asked.
	Empty() bool
}

// View reads the keyed state of a task exactly as of one batch.
type View interface {
	// Scan calls fn for each key of the named state, ordered by key group and key.
	// key is as encoded by tuple.AppendKey; both slices are valid during the call.
	Scan(state string, fn func(key, value []byte) error) error
}
