package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	magic = "isobarlk"
	// version is that of all that travels on a link, including the frames.
	version = 1
	nameMax = 1 << 10
	// A greeting is magic, version, verdict, length, so many bytes, and a checksum.
	greetingBytes = len(magic) + 2 + 1 + 2
	greetingMax   = 8 << 10
)

// hello is what the worker that connects says first.
type hello struct {
	topology   string
	worker     string
	from       hold
	to, toLife string // which worker it wants, in which incarnation
}

// verdict is the answer to a hello.
type verdict byte

const (
	question verdict = 0 // it is no answer
	welcome  verdict = 1
	later    verdict = 2 // not now
	refused  verdict = 3 // and it is no use to try again
)

type answer struct {
	verdict verdict
	reason  error
}

// errRefused is wrapped by the error for a worker that refuses a link for good.
var errRefused = errors.New("it refuses the link")

func (h hello) append(dst []byte) []byte {
	var body []byte
	for _, s := range []string{h.topology, h.worker, h.from.incarnation, h.to, h.toLife} {
		body = append(binary.AppendUvarint(body, uint64(len(s))), s...)
	}
	return greeting(dst, question, binary.AppendUvarint(body, h.from.attempt))
}

func (a answer) append(dst []byte) []byte {
	text := ""
	if a.reason != nil {
		text = a.reason.Error()
	}
	return greeting(dst, a.verdict, []byte(text[:min(len(text), byeMax)]))
}

func greeting(dst []byte, v verdict, body []byte) []byte {
	begin := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = append(dst, byte(v))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(body)))
	return seal(append(dst, body...), begin)
}

// readGreeting reads no byte more than the greeting has.
func readGreeting(in io.Reader) (v verdict, its uint16, body []byte, err error) {
	head := make([]byte, greetingBytes, 512)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, 0, nil, fmt.Errorf("wait for who is there: %w", err)
	}
	if string(head[:len(magic)]) != magic {
		return 0, 0, nil, errors.New("what is there is no worker: it does not speak the protocol of links")
	}
	rest := head[len(magic):]
	its, v = binary.LittleEndian.Uint16(rest), verdict(rest[2])
	n := int(binary.LittleEndian.Uint16(rest[3:]))
	if n > greetingMax {
		return 0, its, nil, fmt.Errorf("greeting of %d bytes: at most %d are allowed", n, greetingMax)
	}
	all := append(head, make([]byte, n+checksumBytes)...)
	if _, err := io.ReadFull(in, all[greetingBytes:]); err != nil {
		return 0, its, nil, fmt.Errorf("in the middle of a greeting: %w", err)
	}
	end := len(all) - checksumBytes
	if crc32.Checksum(all[:end], castagnoli) != binary.LittleEndian.Uint32(all[end:]) {
		return 0, its, nil, errors.New("greeting with a wrong checksum")
	}
	return v, its, all[greetingBytes:end], nil
}

func readHello(in io.Reader) (hello, error) {
	v, its, body, err := readGreeting(in)
	switch {
	case err != nil:
		return hello{}, err
	case its != version:
		return hello{}, fmt.Errorf("the links here have version %d, there version %d: all processes of a topology must be of one isobar", version, its)
	case v != question:
		return hello{}, fmt.Errorf("it answers %d before it was asked", v)
	}
	var h hello
	for _, s := range []*string{&h.topology, &h.worker, &h.from.incarnation, &h.to, &h.toLife} {
		n, w := binary.Uvarint(body)
		if w <= 0 || n == 0 || n > nameMax || n > uint64(len(body)-w) {
			return hello{}, errors.New("hello with a wrong name")
		}
		*s, body = string(body[w:w+int(n)]), body[w+int(n):]
	}
	n, w := binary.Uvarint(body)
	if w <= 0 || w != len(body) {
		return hello{}, errors.New("hello of a wrong length")
	}
	h.from.attempt = n
	return h, nil
}

// readAnswer returns nil if the other end lets this one in.
func readAnswer(in io.Reader) error {
	v, its, body, err := readGreeting(in)
	switch {
	case err != nil:
		return err
	case v == refused:
		return fmt.Errorf("%w: %s", errRefused, body)
	case v == later:
		return fmt.Errorf("it does not take the link now: %s", body)
	case v != welcome || its != version:
		return fmt.Errorf("it answers %d in version %d", v, its)
	}
	return nil
}
