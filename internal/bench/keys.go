package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"unsafe"

	"github.com/isobar-io/isobar/tuple"
)

// keyBytes is the length of a key.
const keyBytes = 12

// keyMaker makes the texts of numbered keys, of many in one allocation, as they are
// when they come in with a frame.
type keyMaker struct{ room []byte }

// make returns the key of a number. Keys are in another order than their numbers.
func (m *keyMaker) make(number int) hashedWord {
	if len(m.room) < keyBytes {
		m.room = make([]byte, keyBytes*frameKeys)
	}
	b := m.room[:keyBytes]
	m.room = m.room[keyBytes:]
	var scattered [8]byte
	// An odd factor: no two numbers below 2^48 have the same product modulo 2^48.
	binary.BigEndian.PutUint64(scattered[:], uint64(number)*0x9e3779b97f4b<<16)
	hex.Encode(b, scattered[:keyBytes/2])
	text := unsafe.String(&b[0], keyBytes) // b is never written again
	return hashedWord{text, tuple.HashBytes(text, 0)}
}

// frameKeys is how many keys are updated in a row: as many as come with a full frame.
const frameKeys = 1024

// drawnMax is how many drawn keys are held at most; they are gone through again and
// again.
const drawnMax = 1 << 23

// distributions return functions that draw numbers of keys.
var distributions = map[string]func(random *rand.Rand, keys int) func() int{
	"uniform": func(random *rand.Rand, keys int) func() int {
		return func() int { return random.IntN(keys) }
	},
	"zipf": func(random *rand.Rand, keys int) func() int {
		z := rand.NewZipf(random, 1.1, 1, uint64(keys-1))
		return func() int { return int(z.Uint64()) }
	},
}

// drawKeys draws keys for updates, whole frames of them and the same at every call.
func drawKeys(keys int, dist string) []hashedWord {
	next := distributions[dist](rand.New(rand.NewPCG(1, 2)), keys)
	n := min(drawnMax, (4*keys+frameKeys-1)/frameKeys*frameKeys)
	drawn := make([]hashedWord, n)
	var m keyMaker
	for i := range drawn {
		drawn[i] = m.make(next())
	}
	return drawn
}

func parseDist(text string) (string, error) {
	if distributions[text] == nil {
		return "", fmt.Errorf("distribution %q: it is uniform or zipf", text)
	}
	return text, nil
}

func parseKeys(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 || n > 1<<31-1 {
		return 0, fmt.Errorf("number of keys %q: it is a whole number from 2 to %d", text, 1<<31-1)
	}
	return n, nil
}
