package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The manifest and the head are text in an envelope whose first and last line have
// the same form in every version:
//
//	isobar <kind> <version>
//	<one JSON document>
//	crc32c <8 hex digits, of all bytes before this line>
const (
	envelopeMagic = "isobar "
	trailerMagic  = "crc32c "
	trailerLen    = len(trailerMagic) + 8 + 1
)

func encodeEnvelope(kind string, version int, doc any) ([]byte, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	b := fmt.Appendf(nil, "%s%s %d\n%s\n", envelopeMagic, kind, version, text)
	return fmt.Appendf(b, "%s%08x\n", trailerMagic, CRC(b)), nil
}

// decodeEnvelope fills doc. The checksum is verified before anything is believed,
// the version included, which it returns.
func decodeEnvelope(kind string, version int, name string, data []byte, doc any) (int, error) {
	damaged := func(what string) (int, error) {
		return 0, fmt.Errorf("%s %s: %w: %s", kind, name, ErrDamaged, what)
	}
	cut := len(data) - trailerLen
	if cut < 0 {
		return damaged("too short")
	}
	body, trailer := data[:cut], string(data[cut:])
	if want := fmt.Sprintf("%s%08x\n", trailerMagic, CRC(body)); trailer != want {
		return damaged(fmt.Sprintf("it ends with %q, its bytes say %q", trailer, want))
	}
	first, text, ok := bytes.Cut(body, []byte("\n"))
	number, isKind := strings.CutPrefix(string(first), envelopeMagic+kind+" ")
	if !ok || !isKind {
		return damaged(fmt.Sprintf("it begins with %.40q, not with \"%s%s\"", first, envelopeMagic, kind))
	}
	v, err := strconv.Atoi(number)
	switch {
	case err != nil || v < 1:
		return damaged(fmt.Sprintf("its version is %.40q", number))
	case v > version:
		return 0, fmt.Errorf("%s %s has format version %d, this isobar reads up to version %d: %w", kind, name, v, version, ErrNewer)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(doc); err != nil {
		return damaged(err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return damaged("there is more than one document")
	}
	return v, nil
}

// checks collects what is wrong with a document.
type checks []error

func (c *checks) add(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

// text demands a text that JSON keeps as it is: encoding/json would replace bytes
// that are not UTF-8, and a position would belong to no partition any more.
func (c *checks) text(what, s string) {
	c.add(s != "", "%s is empty", what)
	c.add(utf8.ValidString(s), "%s %q is not UTF-8", what, s)
}

// object checks the entry of one object.
func (c *checks) object(what, name string, size int64) {
	if err := ValidName(name); err != nil {
		c.add(false, "%s: %w", what, err)
	}
	c.add(size > 0, "%s %s has size %d, must be above 0", what, name, size)
}

func (c checks) err() error { return errors.Join(c...) }
