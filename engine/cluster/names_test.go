package cluster

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTopologyNames(t *testing.T) {
	for _, name := range []string{"wordcount", "word-count_2", "7seas", "-", "_", "NULLS", strings.Repeat("a", 128)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                       "the topology has no name: a name is made of letters",
		" ":                      `topology name " ": a name is made of letters, digits, '-' and '_', with at least one that is no digit`,
		"2024":                   "at least one that is no digit",
		"null":                   "null in any case",
		"Null":                   "null in any case",
		"a.b":                    "a name is made of",
		"a/b":                    "a name is made of",
		"a:b":                    "a name is made of",
		`a\b`:                    "a name is made of",
		"a\n":                    "a name is made of",
		"größe":                  "a name is made of",
		strings.Repeat("a", 129): "has 129 characters: at most 128 are allowed",
	} {
		if err := CheckName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", name, err, want)
		}
	}
}

// Whatever is accepted can be in the name of a bucket, in a subject and in a file name, is
// no number, and comes back from its ids.
func TestAcceptedNamesAreSafe(t *testing.T) {
	safe := regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9_.-]{0,12}`)).Draw(t, "name")
		if CheckName(name) != nil {
			return
		}
		if !safe.MatchString(name) || strings.Trim(name, "0123456789") == "" || strings.EqualFold(name, "null") {
			t.Fatalf("%q was accepted", name)
		}
		counter := rapid.Uint64().Draw(t, "counter")
		id := TopologyID(name, counter, time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "seconds"), 0))
		if back, ok := NameOfID(id); back != name || !ok {
			t.Fatalf("the name of %q is %q, %v", id, back, ok)
		}
	})
}

func TestNameOfID(t *testing.T) {
	if got := TopologyID("a-1", 7, time.Unix(1700000000, 5)); got != "a-1-7-1700000000" {
		t.Errorf("id %q", got)
	}
	for _, id := range []string{"", KeyMark, "a", "a-1", "a-b-1", "a-1-b", "1-2-3", "a.b-1-2", "-1-2"} {
		if name, ok := NameOfID(id); ok {
			t.Errorf("%q is taken for an id of %q", id, name)
		}
	}
}

func TestBlobKeys(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"a", "words.txt", "two words", "tab\there", "-", "...", "a_b-c.D9"} {
		if err := CheckBlobKey(key); err != nil {
			t.Errorf("%q is refused: %v", key, err)
		}
		kept := KeyOfBlob(key)
		if !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(kept) || seen[kept] != "" {
			t.Errorf("%q is kept under %q", key, kept)
		}
		seen[kept] = key
	}
	for key, want := range map[string]string{
		"": "has no key", ".": "the name of a folder", "..": "the name of a folder", "a/b": "a key is made of",
		"a\n": "a key is made of", "ä": "a key is made of", "a:b": "a key is made of",
	} {
		if err := CheckBlobKey(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", key, err, want)
		}
	}
}

func TestBlobRecordsThatAreWrong(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	if err := (BlobRecord{Key: "k", SHA256: sum}).Check("k"); err != nil {
		t.Error(err)
	}
	for want, b := range map[string]BlobRecord{
		`the record of blob "k" is that of "l"`:                                              {Key: "l", SHA256: sum},
		`blob "k": the SHA-256 of its content is "", must be 64 hexadecimal digits in lower`: {Key: "k"},
		`is "` + strings.ToUpper(sum) + `", must be 64`:                                      {Key: "k", SHA256: strings.ToUpper(sum)},
		`is "../..`: {Key: "k", SHA256: strings.Repeat("../.", 16)},
		`its content has -1 bytes, must be 0 or more: update the blob`: {Key: "k", SHA256: sum, Size: -1},
	} {
		if err := b.Check("k"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", b, err, want)
		}
	}
}
