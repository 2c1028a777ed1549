package txn

import (
	"encoding/binary"
	"unsafe"
)

// shortKey is the payload of a key within its entry, so that a look-up goes to memory
// for nothing else and the garbage collector has nothing to follow. Of a payload of more
// than 16 bytes it holds the number among the long ones.
type shortKey struct {
	bytes [shortKeyMax]byte
	size  uint8 // longKey: the payload is elsewhere
}

const (
	shortKeyMax = 16
	longKey     = 0xff
)

// sizeOf returns the size of the key of a payload.
func sizeOf(payload string) uint8 {
	if len(payload) > shortKeyMax {
		return longKey
	}
	return uint8(len(payload))
}

func (k *shortKey) text() string { return unsafe.String(&k.bytes[0], int(k.size)) }

func (k *shortKey) number() uint64 { return binary.LittleEndian.Uint64(k.bytes[:]) }

// set makes k the key of a payload, which long keeps if it does not fit.
func (k *shortKey) set(payload string, long *textStore) {
	if k.size = sizeOf(payload); k.size == longKey {
		binary.LittleEndian.PutUint64(k.bytes[:], long.add(payload))
		return
	}
	copy(k.bytes[:], payload)
}
