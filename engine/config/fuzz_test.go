package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: a file is refused with an error that names it, or all of its values can be
// read, and are in range.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		"", "---\n", "# nothing\n", "null\n",
		"transaction.topology: false\ntopology.key.groups: 16\ncheckpoint.store: file:///tmp/x\nuser.mine: [1, {a: b}]\n",
		"topology.key.groups: '16'\n", "a: &a\n  b: *a\n", "user.x: &x [*x]\n", "topology.key.groups: 0x10\n",
		"transaction.topology: yes\n? [a]\n: b\n", "<<: {a: b}\n", "user.t: !!binary aGk=\n", "topology.restart.max: 1_0\n",
		"topology.blobstore.map: {a: {localname: b}, b: {localname: c}}\n", "topology.blobstore.map: {a: &a {b: *a}}\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "file.yaml")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		v, err := Load(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		for name, val := range v.All() {
			if isUser(name) {
				continue
			}
			k, err := Lookup(name)
			if err == nil {
				err = k.accept(val)
			}
			if err != nil {
				t.Fatalf("%q was taken: %v", text, err)
			}
			if k.Unit != 0 && v.Duration(name) < 0 {
				t.Fatalf("%s is a time of %v", name, v.Duration(name))
			}
		}
		v.Blobs() // panics if what was taken cannot be read
		if again, err := Of(collect(v)); err != nil {
			t.Fatalf("%v of %q is not taken again: %v", collect(again), text, err)
		}
	})
}

func collect(v Values) map[string]any {
	all := map[string]any{}
	for name, val := range v.All() {
		all[name] = val
	}
	return all
}
