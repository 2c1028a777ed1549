package config

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the reference page instead of comparing it")

func TestReferencePageIsFresh(t *testing.T) {
	const page = "../../docs/config.md"
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Markdown() {
		t.Error("docs/config.md is stale: run go generate ./engine/config")
	}
}

func TestTableIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		if seen[k.Name] || k.Name == "" || k.Meaning == "" || k.Scope == "" {
			t.Errorf("key %q is listed twice or lacks a meaning or scope", k.Name)
		}
		seen[k.Name] = true
		if err := k.accept(k.Default); err != nil {
			t.Errorf("the default of %s is not accepted: %v", k.Name, err)
		}
		if _, later := notYet[k.Name]; later {
			t.Errorf("%s acts and is listed as not supported yet", k.Name)
		}
		var want time.Duration
		switch {
		case strings.HasSuffix(k.Name, ".ms"):
			want = time.Millisecond
		case strings.HasSuffix(k.Name, ".secs"), strings.HasSuffix(k.Name, ".timeout"):
			want = time.Second
		}
		if k.Unit != want {
			t.Errorf("%s is in units of %v, its name says %v", k.Name, k.Unit, want)
		}
	}
}

func load(t *testing.T, text string) (Values, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

func TestZeroValuesAreDefaults(t *testing.T) {
	v := Defaults()
	if v.Int("transaction.schedule.batch.delay.ms") != 1000 || !v.Bool("transaction.topology") || v.String("checkpoint.store") != "" {
		t.Error("defaults differ from the table")
	}
	if d := v.Duration("transaction.batch.snapshot.timeout"); d != 2*time.Minute {
		t.Errorf("snapshot timeout is %v", d)
	}
	if d := v.Duration("transaction.schedule.batch.delay.ms"); d != time.Second {
		t.Errorf("batch delay is %v", d)
	}
	if _, ok := v.Get("user.x"); ok {
		t.Error("a user key that was not set has a value")
	}
	if o := v.Origin("transaction.topology"); o != FromDefault {
		t.Errorf("origin of a default is %q", o)
	}
}

func TestLaterLayersWinAndKeepTheirOrigin(t *testing.T) {
	file, err := load(t, "# ours\ntransaction.max.pending.batch: 3\ncheckpoint.retained: 7\ntopology.key.groups: 16\nuser.list: [1, two]\n")
	if err != nil {
		t.Fatal(err)
	}
	code, err := Of(map[string]any{"checkpoint.retained": 8, "topology.key.groups": 32})
	if err != nil {
		t.Fatal(err)
	}
	flags, err := ParseAssignments([]string{"topology.key.groups=64", "user.rate=2.5", "transaction.topology=false", "checkpoint.store=file:///var/lib/x"})
	if err != nil {
		t.Fatal(err)
	}
	v := Merge(Defaults(), file, code, flags)
	for key, want := range map[string]struct {
		value  any
		origin string
	}{
		"transaction.max.pending.batch": {3, file.Origin("user.list")},
		"checkpoint.retained":           {8, FromTopology},
		"topology.key.groups":           {64, FromFlag},
		"transaction.topology":          {false, FromFlag},
		"topology.restart.max":          {10, FromDefault},
		"user.rate":                     {2.5, FromFlag},
		"checkpoint.store":              {"file:///var/lib/x", FromFlag},
	} {
		if got, ok := v.Get(key); got != want.value || !ok || v.Origin(key) != want.origin {
			t.Errorf("%s = %v from %q, want %v from %q", key, got, v.Origin(key), want.value, want.origin)
		}
	}
	if filepath.Base(v.Origin("user.list")) != "isobar.yaml" {
		t.Errorf("origin of a value from a file is %q", v.Origin("user.list"))
	}
	all := maps.Collect(v.All())
	if len(all) != len(Keys())+2 || all["topology.key.groups"] != 64 {
		t.Errorf("All yields %d values: %v", len(all), all)
	}
	if file.Int("topology.key.groups") != 16 {
		t.Error("merging changed a layer")
	}
}

func TestFileIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		`topology.key.groups: "2"`:                         `line 1: topology.key.groups is the text "2", must be a whole number from 1 to 65536`,
		"topology.key.groups: 0":                           "topology.key.groups is 0, must be",
		"topology.key.groups: -4":                          "topology.key.groups is -4, must be",
		"topology.key.groups: 2.0":                         "topology.key.groups is 2.0, must be",
		"topology.key.groups: 0x10":                        `"0x10", must be`,
		"topology.key.groups: 010":                         `"010", must be`,
		"topology.key.groups: 99999999999999999999":        "must be a whole number",
		"topology.key.groups:":                             "topology.key.groups is empty, must be",
		"topology.key.groups: [2]":                         "is a list, must be",
		"topology.key.groups: true":                        "is true, must be",
		"transaction.topology: yes please":                 `is the text "yes please", must be true or false`,
		"transaction.topology: 1":                          "is 1, must be true or false",
		"transaction.schedule.batch.delay.ms: 1s":          `is the text "1s", must be a whole number, 1 or more`,
		"checkpoint.store: 5":                              "is 5, must be a text",
		"checkpoint.store: gs://bucket":                    "must begin with file:// or s3://",
		"checkpoint.store: file://relative":                "must be file:// and an absolute path",
		"checkpoint.store: s3:///prefix":                   "must be s3://BUCKET or s3://BUCKET/PREFIX",
		"checkpoint.retained: 3\n\ncheckpoint.retained: 3": "line 3: checkpoint.retained is set twice, first in line 1",
		"transaction: {topology: false}":                   "keys are written flat, as transaction.topology: true",
		"transaction.max.pending.bach: 2":                  "did you mean transaction.max.pending.batch?",
		"max.pending.batch: 2":                             "did you mean transaction.max.pending.batch?",
		"max.spout.pendng: 10":                             "the nearest, topology.max.spout.pending, is not supported yet",
		"topology.priority: 2":                             "topology.priority is not supported yet",
		"colour: blue":                                     `colour is not a configuration key, see: isobar config (keys of your own begin with "user.")`,
		"topology.exactly.once: 1":                         "did you mean transaction.exactly.once",
		"topology.elsewhere: 1":                            "topology.elsewhere is not a configuration key, see: isobar config",
		"user.: 1":                                         "user. is not a configuration key",
		"user.a: {b: 1, b: 2}":                             "user.a",
		"- a":                                              "must be a YAML mapping",
		"a: b\n---\nc: d":                                  "single YAML document",
		"a: [":                                             "configuration file",
		"? [a]\n: 1":                                       "a key must be a plain name",
	} {
		_, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a missing file gives %v", err)
	}
}

func TestFileReportsEveryError(t *testing.T) {
	_, err := load(t, "topology.priority: 2\ntopology.key.groups: 0\nuser.fine: 1\n")
	if err == nil || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v does not name both lines", err)
	}
}

func TestFileMayBeEmptyOrUseAnchors(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "user.n: &n 5\ncheckpoint.retained: *n\n"} {
		v, err := load(t, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if strings.Contains(text, "&n") && v.Int("checkpoint.retained") != 5 {
			t.Errorf("%q: retained is %d", text, v.Int("checkpoint.retained"))
		}
	}
}

func TestAssignmentsAreStrict(t *testing.T) {
	for text, want := range map[string]string{
		"topology.key.groups":          "must be key=value",
		"=3":                           "must be key=value",
		"topology.key.groups=":         `is "", must be`,
		"topology.key.groups=two":      `is "two", must be`,
		`topology.key.groups="2"`:      "must be a whole number",
		"topology.key.groups= 2":       "must be a whole number",
		"topology.key.groups=-2":       "must be a whole number",
		"transaction.topology=TRUE":    "must be true or false",
		"topology.max.spout.pending=1": "topology.max.spout.pending is not supported yet",
		"checkpoint.stor=file:///x":    "did you mean checkpoint.store?",
		"user.x=[":                     "user.x",
	} {
		_, err := ParseAssignments([]string{text})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "-c "+text+": ") {
			t.Errorf("-c %s: error %v, want one with %q", text, err, want)
		}
	}
	if _, err := ParseAssignments([]string{"checkpoint.retained=2", "checkpoint.retained=2"}); err == nil || !strings.Contains(err.Error(), "set twice") {
		t.Errorf("a key set twice gives %v", err)
	}
}

func TestTopologyValuesAreStrict(t *testing.T) {
	_, err := Of(map[string]any{"checkpoint.retained": "3", "topology.key.groups": int64(4), "transaction.topolgy": true})
	for _, want := range []string{`checkpoint.retained is the text "3"`, "4 of type int64", "did you mean transaction.topology?"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

// Numbers that have been through JSON are whole numbers again, if they are whole.
func TestValuesThatWereJSON(t *testing.T) {
	v, err := OfJSON("a record", map[string]any{"topology.key.groups": 16.0, "transaction.topology": false, "user.rate": 2.0, "topology.users": "ann, bob,"})
	if err != nil {
		t.Fatal(err)
	}
	if rate, _ := v.Get("user.rate"); v.Int("topology.key.groups") != 16 || v.Bool("transaction.topology") || rate != 2.0 || v.Origin("topology.users") != "a record" {
		t.Errorf("values %v", maps.Collect(v.Set()))
	}
	if users := v.List("topology.users"); !slices.Equal(users, []string{"ann", "bob"}) {
		t.Errorf("users %q", users)
	}
	for _, wrong := range []any{16.5, 1e18, -1.0, "16"} {
		if _, err := OfJSON("", map[string]any{"topology.key.groups": wrong}); err == nil {
			t.Errorf("%v was taken", wrong)
		}
	}
}

func TestAccessorsPanicOnProgrammingErrors(t *testing.T) {
	for name, f := range map[string]func(){
		"unknown key":    func() { Defaults().Int("transaction.max.pending.bach") },
		"other type":     func() { Defaults().Int("transaction.topology") },
		"not a duration": func() { Defaults().Duration("checkpoint.retained") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestStoreFolder(t *testing.T) {
	if got, err := StoreFolder("file:///data/check%20points/"); err != nil || got != filepath.FromSlash("/data/check points") {
		t.Errorf("folder %q, error %v", got, err)
	}
	if bucket, prefix, err := StoreBucket("s3://bucket/a/b/"); bucket != "bucket" || prefix != "a/b" || err != nil {
		t.Errorf("bucket %q, prefix %q, error %v", bucket, prefix, err)
	}
}
