package peer

import (
	"math/bits"
	"sync"
)

// Frames are encoded into buffers that are powers of two long, and used again.
const (
	bufferBitsMin = 9  // 512 B
	bufferBitsMax = 18 // 256 KB; longer ones are left to the garbage collector
)

var buffers [bufferBitsMax + 1]sync.Pool // of *[]byte, by the bits of their length

// bufferFor returns an empty buffer with room for at least n bytes.
func bufferFor(n int) []byte {
	size := max(bits.Len(uint(max(n, 1)-1)), bufferBitsMin)
	if size > bufferBitsMax {
		return make([]byte, 0, n)
	}
	if b, ok := buffers[size].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 1<<size)
}

// release takes a buffer back that nobody refers to any more.
func release(b []byte) {
	size := bits.Len(uint(cap(b))) - 1 // what it surely has room for
	if size < bufferBitsMin || size > bufferBitsMax {
		return
	}
	b = b[:0]
	buffers[size].Put(&b)
}
