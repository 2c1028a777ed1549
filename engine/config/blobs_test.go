package config

import (
	"slices"
	"strings"
	"testing"
)

// The same map as JSON after -c, as YAML in a file, as JSON in a file, and in code.
func TestBlobMaps(t *testing.T) {
	const text = `{"model": {}, "my dict": {"localname": "dict.txt", "workerRestart": true}, "a.zip": {"localname": "rules", "uncompress": true, "workerRestart": false}}`
	want := []Blob{
		{Key: "a.zip", LocalName: "rules", Uncompress: true},
		{Key: "model", LocalName: "model"},
		{Key: "my dict", LocalName: "dict.txt", WorkerRestart: true},
	}
	given := map[string]func() (Values, error){
		"-c": func() (Values, error) { return ParseAssignments([]string{KeyBlobs + "=" + text}) },
		"a mapping": func() (Values, error) {
			return load(t, "topology.blobstore.map:\n  model: {}\n  my dict: &x\n    localname: dict.txt\n    workerRestart: true\n"+
				"  a.zip: {localname: rules, uncompress: true, workerRestart: false}\n")
		},
		"JSON that YAML reads": func() (Values, error) { return load(t, KeyBlobs+": "+text) },
		"JSON in quotes":       func() (Values, error) { return load(t, KeyBlobs+": '"+text+"'") },
		"code":                 func() (Values, error) { return Of(map[string]any{KeyBlobs: text}) },
		"a record":             func() (Values, error) { return OfJSON("", map[string]any{KeyBlobs: text}) },
		"the environment of daemons": func() (Values, error) {
			return topologies.Environment("X", []string{"X_TOPOLOGY_BLOBSTORE_MAP=" + text})
		},
	}
	for name, read := range given {
		v, err := read()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := v.Blobs(); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	none, err := ParseAssignments([]string{KeyBlobs + "="})
	if err != nil || none.Blobs() != nil || Defaults().Blobs() != nil {
		t.Errorf("nothing is %+v, %v", none.Blobs(), err)
	}
	code, err := Of(map[string]any{KeyBlobs: text})
	if merged := Merge(code, none); err != nil || merged.Blobs() != nil {
		t.Errorf("nothing over something is %+v, %v", merged.Blobs(), err)
	}
}

var wrongBlobMaps = map[string]string{
	`[]`:                          `[] is no JSON object: it must be JSON, as in {"dict":{"localname":"dict.txt"}}`,
	`dict`:                        `dict is no JSON object`,
	`{"a":{}`:                     `EOF: it must be JSON, as in`,
	`{"a":{}} {}`:                 `something follows its end`,
	`{}`:                          `it names no blob: leave it empty if there is none`,
	`{"a":{},"a":{}}`:             `"a" is there twice`,
	`{"a":null}`:                  `blob "a": null is no JSON object: it must be an object, as in {} or {"localname":"dict.txt"}`,
	`{"a":"dict.txt"}`:            `blob "a": "dict.txt" is no JSON object`,
	`{"a":{"localName":"b"}}`:     `blob "a": it has no field "localName", did you mean localname?`,
	`{"a":{"restart":true}}`:      `did you mean workerRestart?`,
	`{"a":{"uncompress":"true"}}`: `blob "a": uncompress is "true", must be true or false`,
	`{"a":{"workerRestart": 1}}`:  `blob "a": workerRestart is 1, must be true or false`,
	`{"a":{"uncompress": null}}`:  `blob "a": uncompress is null, must be true or false`,
	`{"a":{"localname":5}}`:       `blob "a": localname is 5, must be a text`,
	`{"a":{"uncompress":true,"uncompress":false}}`: `blob "a": "uncompress" is there twice`,
	`{"a":{"localname":""}}`:                       `blob "a": its localname is "", must be the name of a file`,
	`{"a":{"localname":"d/x"}}`:                    `its localname is "d/x", must be the name of a file`,
	`{"a":{"localname":"d\\x"}}`:                   `its localname is "d\\x", must be`,
	`{"a":{"localname":".."}}`:                     `its localname is "..", must be`,
	`{"a":{"localname":".isobar"}}`:                `not begin with '.'`,
	`{".a":{}}`:                                    `blob ".a": its localname is ".a", must be`,
	`{"a":{"localname":"ä"}}`:                      `its localname is "ä", must be`,
	`{"a":{"localname":"x\n"}}`:                    `its localname is "x\n", must be`,
	`{"a":{"localname":"Lock"}}`:                   `its localname is "Lock", which is a name that the engine needs in the working folder: take another`,
	`{"told.json":{}}`:                             `which is a name that the engine needs`,
	`{"b":{"localname":"a"},"a":{}}`:               `blob "b": its localname "a" is that of blob "a", too: give one of them another`,
}

func TestWrongBlobMaps(t *testing.T) {
	for text, want := range wrongBlobMaps {
		for _, read := range []func() (Values, error){
			func() (Values, error) { return ParseAssignments([]string{KeyBlobs + "=" + text}) },
			func() (Values, error) { return Of(map[string]any{KeyBlobs: text}) },
		} {
			_, err := read()
			if err == nil || !strings.Contains(err.Error(), KeyBlobs+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q and the key", text, err, want)
			}
		}
	}
	_, err := ParseAssignments([]string{KeyBlobs + `={"a":{"x":1},"b":{},"c":{"localname":"b"}}`})
	if err == nil || !strings.Contains(err.Error(), `blob "a"`) || !strings.Contains(err.Error(), `blob "c"`) {
		t.Errorf("error %v, want one with all that is wrong", err)
	}
}

func TestWrongBlobMapsInAFile(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                   "line 1: topology.blobstore.map: it names no blob",
		`{a: {localname: 5}}`:  `line 1: topology.blobstore.map: blob "a": localname is 5, must be a text`,
		`{a: {}, a: {}}`:       `topology.blobstore.map: yaml: unmarshal errors`,
		`{1: {}}`:              "topology.blobstore.map: it must hold names and values that JSON has",
		`{a: }`:                `blob "a": null is no JSON object`,
		`{a: {localname: .5}}`: "localname is 0.5, must be a text",
		`[a]`:                  "topology.blobstore.map is a list, must be a JSON object; in a file, a mapping",
		`true`:                 "topology.blobstore.map is true, must be a JSON object",
		``:                     "topology.blobstore.map is empty, must be a JSON object",
	} {
		_, err := load(t, KeyBlobs+": "+text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	for name, value := range map[string]any{"a bool": true, "a Go map": map[string]any{"a": map[string]any{}}} {
		if _, err := Of(map[string]any{KeyBlobs: value}); err == nil || !strings.Contains(err.Error(), "must be a JSON object") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// FuzzBlobMaps: a map is refused, or every blob in it can be a file of its own.
func FuzzBlobMaps(f *testing.F) {
	f.Add(`{"dict":{"localname":"dict.txt","uncompress":false,"workerRestart":true},"model":{}}`)
	for text := range wrongBlobMaps {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		blobs, err := parseBlobs(text)
		if err != nil || text == "" {
			return
		}
		names := map[string]bool{}
		for _, b := range blobs {
			names[b.LocalName] = true
			if strings.ContainsAny(b.LocalName, "/\\\x00\n") || b.LocalName == "" || b.LocalName[0] == '.' {
				t.Errorf("%q: blob %+v", text, b)
			}
		}
		if len(names) != len(blobs) || len(blobs) == 0 || !slices.IsSortedFunc(blobs, func(a, b Blob) int { return strings.Compare(a.Key, b.Key) }) {
			t.Errorf("%q: blobs %+v", text, blobs)
		}
	})
}
