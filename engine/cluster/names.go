package cluster

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// topologyNameMax leaves room for the rest of an ID in the name of a bucket.
const topologyNameMax = 128

var topologyName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// CheckName checks the name of a topology: what both Storm and JStorm take, so that it can
// stand in ids, in file names and in subjects.
func CheckName(name string) error {
	const right = "a name is made of letters, digits, '-' and '_', with at least one that is no digit"
	switch {
	case name == "":
		return fmt.Errorf("the topology has no name: %s", right)
	case len(name) > topologyNameMax:
		return fmt.Errorf("topology name %.20q… has %d characters: at most %d are allowed", name, len(name), topologyNameMax)
	case strings.EqualFold(name, "null"):
		return fmt.Errorf("topology name %q: null in any case is what a name that was forgotten looks like; %s", name, right)
	case !topologyName.MatchString(name), strings.Trim(name, "0123456789") == "":
		return fmt.Errorf("topology name %q: %s", name, right)
	}
	return nil
}

// TopologyID returns the id of a topology. counter is never used twice as long as the
// coordination store lives; the seconds keep ids apart when it was made anew.
func TopologyID(name string, counter uint64, at time.Time) string {
	return fmt.Sprintf("%s-%d-%d", name, counter, at.Unix())
}

var topologyID = regexp.MustCompile(`^([A-Za-z0-9_-]+)-[0-9]+-[0-9]+$`)

// NameOfID returns the name in the id of a topology; ok is false if it is none.
func NameOfID(id string) (name string, ok bool) {
	m := topologyID.FindStringSubmatch(id)
	if m == nil || CheckName(m[1]) != nil {
		return "", false
	}
	return m[1], true
}

var blobKey = regexp.MustCompile(`^[\w \t.-]+$`)

// CheckBlobKey checks the key of a user's blob, by Storm's rule.
func CheckBlobKey(key string) error {
	switch {
	case key == "":
		return errors.New("the blob has no key: a key is made of letters, digits, '_', '-', '.', space and tab")
	case key == "." || key == "..":
		return fmt.Errorf("blob key %q is the name of a folder: add a letter", key)
	case !blobKey.MatchString(key):
		return fmt.Errorf("blob key %q: a key is made of letters, digits, '_', '-', '.', space and tab", key)
	}
	return nil
}

// CheckContent checks how a content is named: by its SHA-256 in hex, in lower case.
func CheckContent(sha256 string, size int64) error {
	switch {
	case len(sha256) != 64 || strings.Trim(sha256, "0123456789abcdef") != "":
		return fmt.Errorf("the SHA-256 of its content is %q, must be 64 hexadecimal digits in lower case", sha256)
	case size < 0:
		return fmt.Errorf("its content has %d bytes, must be 0 or more", size)
	}
	return nil
}

// KeyOfBlob returns where [BucketBlobs] holds the record of a blob: keys of a bucket are
// made of fewer characters than those of blobs.
func KeyOfBlob(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }
