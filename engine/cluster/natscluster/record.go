package natscluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
)

// record is what the message of an object says. Users write these, so that any of them may
// be wrong: see [decodeRecord].
type record struct {
	Name      string            `json:"name"`
	Size      int64             `json:"size"`
	SHA256    string            `json:"sha256"`
	Upload    string            `json:"upload"`    // where its parts are: ROLE.USER.TOKEN; also its revision
	PartBytes int64             `json:"partBytes"` // of each part but the last, which may have less
	Meta      map[string]string `json:"meta,omitempty"`
}

var uploads = regexp.MustCompile(`^[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+$`)

// decodeRecord reads what there is of an object. What cannot have been put is an error.
func decodeRecord(name string, data []byte) (record, error) {
	var r record
	err := json.Unmarshal(data, &r)
	switch {
	case err != nil:
	case r.Name != name:
		err = fmt.Errorf("it is about %q", r.Name)
	case r.Size < 0 || r.PartBytes <= 0:
		err = fmt.Errorf("it tells of %d bytes in parts of %d", r.Size, r.PartBytes)
	case !uploads.MatchString(r.Upload):
		err = errors.New("where its parts are is no place for them")
	}
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return r, nil
}

func (r record) object() cluster.Object {
	_, revision, _ := cutLast(r.Upload)
	return cluster.Object{Name: r.Name, Size: r.Size, SHA256: r.SHA256, Revision: revision, Meta: maps.Clone(r.Meta)}
}

// sizeOf returns how many bytes a part has, 0 if there is none of that number.
func (r record) sizeOf(part int64) int64 {
	if part > r.Size/r.PartBytes { // and not part*PartBytes, which may be too large a number
		return 0
	}
	return min(r.PartBytes, r.Size-part*r.PartBytes)
}

func cutLast(upload string) (before, after string, ok bool) {
	i := strings.LastIndexByte(upload, '.')
	if i < 0 {
		return "", upload, false
	}
	return upload[:i], upload[i+1:], true
}
