package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// KeyBlobs is the key of the blobs of a topology; see [Values.Blobs].
const KeyBlobs = "topology.blobstore.map"

// Blob is a blob of a cluster that a topology's processes find as a file, or as a folder
// if it is an archive that is unpacked, in their working folder.
type Blob struct {
	Key           string
	LocalName     string // of the file
	Uncompress    bool
	WorkerRestart bool // make the processes anew when its content has changed
}

// Blobs returns what topology.blobstore.map says, in the order of keys.
func (v Values) Blobs() []Blob {
	blobs, err := parseBlobs(v.String(KeyBlobs))
	if err != nil {
		panic(fmt.Sprintf("config: %v", err)) // it was checked when it was set
	}
	return blobs
}

func checkBlobs(text string) error {
	_, err := parseBlobs(text)
	return err
}

// parseBlobs reads the value of topology.blobstore.map. All that is wrong is in one error.
func parseBlobs(text string) ([]Blob, error) {
	if text == "" {
		return nil, nil
	}
	wrong := func(err error) error { return fmt.Errorf("%s: %w", KeyBlobs, err) }
	fields, err := object([]byte(text))
	switch {
	case err != nil:
		return nil, wrong(fmt.Errorf(`%w: it must be JSON, as in {"dict":{"localname":"dict.txt"}}`, err))
	case len(fields) == 0:
		return nil, wrong(errors.New("it names no blob: leave it empty if there is none"))
	}
	var blobs []Blob
	var errs []error
	keyOf := map[string]string{} // by local name
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		b, err := parseBlob(key, fields[key])
		if other, twice := keyOf[b.LocalName]; err == nil && twice {
			err = fmt.Errorf("its localname %q is that of blob %q, too: give one of them another", b.LocalName, other)
		}
		if err != nil {
			errs = append(errs, wrong(fmt.Errorf("blob %q: %w", key, err)))
			continue
		}
		keyOf[b.LocalName] = key
		blobs = append(blobs, b)
	}
	return blobs, errors.Join(errs...)
}

func parseBlob(key string, text json.RawMessage) (Blob, error) {
	b := Blob{Key: key, LocalName: key}
	fields, err := object(text)
	if err != nil {
		return b, fmt.Errorf(`%w: it must be an object, as in {} or {"localname":"dict.txt"}`, err)
	}
	targets := map[string]any{"localname": &b.LocalName, "uncompress": &b.Uncompress, "workerRestart": &b.WorkerRestart}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		target, ok := targets[name]
		if !ok {
			near := Nearest(name, slices.Sorted(maps.Keys(targets)))
			return b, fmt.Errorf("it has no field %q, did you mean %s?", name, near)
		}
		want := "true or false"
		if _, isText := target.(*string); isText {
			want = "a text"
		}
		if err := json.Unmarshal(fields[name], target); err != nil || string(fields[name]) == "null" {
			return b, fmt.Errorf("%s is %s, must be %s", name, fields[name], want)
		}
	}
	return b, checkLocalName(b.LocalName)
}

var localName = regexp.MustCompile(`^[\w \t-][\w \t.-]*$`)

// ofEngine are names that the engine has files of its own under in a working folder.
var ofEngine = []string{"begun", "checkpoints", "local", "lock", "ran", "told.json"}

func checkLocalName(name string) error {
	switch {
	case !localName.MatchString(name):
		return fmt.Errorf("its localname is %q, must be the name of a file in the working folder, made of letters, digits, '_', '-', '.', space and tab, and not begin with '.'", name)
	case slices.Contains(ofEngine, strings.ToLower(name)):
		return fmt.Errorf("its localname is %q, which is a name that the engine needs in the working folder: take another", name)
	}
	return nil
}

// object returns the fields of a JSON object, each of which must be there once.
func object(text []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return nil, fmt.Errorf("%s is no JSON object", text)
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if _, twice := fields[name.(string)]; twice {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		fields[name.(string)] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows its end")
	}
	return fields, nil
}
