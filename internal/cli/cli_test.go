package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/txn"
)

// call runs a command line; text output must fit the columns.
func call(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(args, &o, &e)
	for line := range strings.Lines(o.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns && !strings.HasPrefix(line, "{") && !strings.Contains(strings.Join(args, " "), "--json") {
			t.Errorf("isobar %s prints a line of %d columns: %q", strings.Join(args, " "), n, line)
		}
	}
	return code, o.String(), e.String()
}

// manifest returns a manifest like that of a word count.
func manifest(region string, g checkpoint.Generation, n checkpoint.BatchID) *checkpoint.Manifest {
	return &checkpoint.Manifest{
		Topology: "words", RunID: "run-1", Region: region, Generation: g, Batch: n, UnixMilli: 1_700_000_000_000,
		Engine: "0.1.0", Table: checkpoint.TableFormat, KeyGroups: 256, Graph: "fingerprint",
		Components: map[string]checkpoint.ComponentMeta{
			"lines": {Parallelism: 1}, "count": {Parallelism: 2, Keyed: true}, "sink": {Parallelism: 1},
		},
		Tasks: []checkpoint.TaskSnapshot{
			{Component: "lines", Positions: []txn.Position{
				{Partition: txn.PartitionID("/data/" + strings.Repeat("long/", 30) + "kjv.txt"), Data: []byte{1, 2, 3}},
				{Partition: "topic-3", Data: []byte("offset 77")},
			}, Finished: true},
			{
				Component: "count", Index: 1,
				Files: []checkpoint.FileRef{
					{Name: checkpoint.DataName(g, "count", 1, n, "u1"), Base: true, Batch: n, Generation: g, Size: 5000, GroupTo: 128},
					{Name: checkpoint.DataName(g, "count", 1, n, "u2"), Batch: n, Generation: g, Size: 77, GroupTo: 128},
				},
				States: []txn.StateMeta{{ID: 1, Name: "total", Kind: "aggregate", Codec: "sum", Version: 1}},
			},
			{Component: "sink", Handles: []txn.Handle{{Batch: n, Generation: g, Data: []byte("prepared-9")}}},
		},
	}
}

// build makes a data folder with checkpoints 1.1 and 2.5 of a topology, the second
// current, and 1.2 pinned.
func build(t *testing.T, topology string) (data string, store *filestore.Store) {
	t.Helper()
	data = t.TempDir()
	store, err := filestore.Open(filepath.Join(data, "checkpoints", topology))
	if err != nil {
		t.Fatal(err)
	}
	put := func(g checkpoint.Generation, n checkpoint.BatchID) checkpoint.Ref {
		m := manifest("count", g, n)
		b, err := checkpoint.EncodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		ref := checkpoint.Ref{
			Generation: g, Batch: n, Manifest: checkpoint.ManifestName(g, n, "count", "x"),
			Size: int64(len(b)), CRC32C: checkpoint.CRC(b), UnixMilli: m.UnixMilli, Ended: n == 5,
		}
		if err := store.Put(t.Context(), ref.Manifest, bytes.NewReader(b), ref.Size, ref.CRC32C); err != nil {
			t.Fatal(err)
		}
		return ref
	}
	head(t, store, &checkpoint.Head{
		Topology: topology, RunID: "run-1", Generation: 2, Writer: "w1",
		Regions: map[string]checkpoint.RegionHead{"count": {Generation: 2, Retained: []checkpoint.Ref{put(1, 1), put(2, 5)}}},
		Pins:    []checkpoint.Pin{{Ref: put(1, 2), Region: "count"}},
	})
	return data, store
}

func head(t *testing.T, store *filestore.Store, h *checkpoint.Head) {
	t.Helper()
	b, err := checkpoint.EncodeHead(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.SwapHead(t.Context(), "", b); err != nil {
		t.Fatal(err)
	}
}

// contains demands exit code 0 and some texts.
func contains(t *testing.T, args []string, want ...string) string {
	t.Helper()
	code, out, errOut := call(t, args...)
	if code != exitOK || errOut != "" {
		t.Fatalf("isobar %s: exit code %d, %s", strings.Join(args, " "), code, errOut)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("isobar %s prints\n%s\nwithout %q", strings.Join(args, " "), out, w)
		}
	}
	return out
}

func TestListShowsWhatCanBeGoneBackTo(t *testing.T) {
	data, _ := build(t, "words")
	for _, store := range []string{data, filepath.Join(data, "checkpoints"), "file://" + filepath.ToSlash(filepath.Join(data, "checkpoints"))} {
		out := contains(t, []string{"checkpoint", "list", store},
			"Topology words, generation 2, run run-1", "CHECKPOINT", "2023-11-14 22:13:20")
		lines := strings.Split(out, "\n")
		for i, want := range [][]string{2: {"1.1 ", " count ", "retained"}, 3: {"1.2 ", "pinned"}, 4: {"2.5 ", "current, all input ended"}} {
			for _, w := range want {
				if !strings.Contains(lines[i], w) {
					t.Errorf("line %d of\n%s\nlacks %q", i, out, w)
				}
			}
		}
	}
	var got []listed
	if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "list", data, "words", "--json"})), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[2].Checkpoint != "2.5" || got[2].Status != "current" || got[2].Tasks != 3 || got[2].Bytes <= 5077 || got[2].Error != "" {
		t.Errorf("JSON holds %+v", got)
	}
}

func TestShowPrintsPositionsFilesAndTransactions(t *testing.T) {
	data, _ := build(t, "words")
	contains(t, []string{"checkpoint", "show", data},
		"Checkpoint 2.5 of topology words (current, all input ended)", "Task lines/0, all input read", "position topic-3: offset 77",
		"position /data/long/", "base 2.5, key groups 0-127, 5000 bytes\n        data/", "delta 2.5", "State total of count: aggregate of sum, version 1",
		"transaction 2.5: 10 bytes: prepared-9", "count: tasks 2, keyed")
	contains(t, []string{"checkpoint", "show", data, "1.1"}, "Checkpoint 1.1 of topology words (retained)\n")
	contains(t, []string{"checkpoint", "show", data, "words", "1.2"}, "Checkpoint 1.2 of topology words (pinned)")
	var got []checkpoint.Manifest
	if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "show", data, "1.1", "--json"})), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Batch != 1 || len(got[0].Tasks) != 3 {
		t.Errorf("JSON holds %+v", got)
	}
}

func TestSeveralTopologiesMustBeNamed(t *testing.T) {
	data, _ := build(t, "words")
	other, err := filestore.Open(filepath.Join(data, "checkpoints", "other"))
	if err != nil {
		t.Fatal(err)
	}
	head(t, other, &checkpoint.Head{Topology: "other", RunID: "run-2", Generation: 1, Writer: "w", Regions: map[string]checkpoint.RegionHead{}})
	contains(t, []string{"checkpoint", "list", data}, "Topology other", "No checkpoint was committed yet.", "Topology words", "2.5")
	contains(t, []string{"checkpoint", "show", data, "words"}, "Checkpoint 2.5")
	for want, args := range map[string][]string{
		"several topologies, name one: other, words":   {"checkpoint", "show", data},
		`no checkpoints of topology "wrods", only of`:  {"checkpoint", "list", data, "wrods"},
		`topology "other" has committed no`:            {"checkpoint", "show", data, "other"},
		`no checkpoint "9.9", there are 1.1, 1.2, 2.5`: {"checkpoint", "show", data, "words", "9.9"},
	} {
		if code, _, errOut := call(t, args...); code != exitFailed || !strings.Contains(errOut, want) {
			t.Errorf("isobar %s: exit code %d, %q lacks %q", strings.Join(args, " "), code, errOut, want)
		}
	}
}

func TestDamageIsNamed(t *testing.T) {
	data, store := build(t, "words")
	name := checkpoint.ManifestName(1, 1, "count", "x")
	if err := store.Delete(context.Background(), name); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := call(t, "checkpoint", "list", data)
	if code != exitFailed || !strings.Contains(errOut, name) || !strings.Contains(out, "unreadable") || !strings.Contains(out, "2.5") {
		t.Errorf("list: exit code %d\n%s\n%s", code, out, errOut)
	}
	if code, _, errOut := call(t, "checkpoint", "show", data, "1.1"); code != exitFailed || !strings.Contains(errOut, name) {
		t.Errorf("show: exit code %d, %s", code, errOut)
	}
	file := headFile(t, data)
	if err := os.WriteFile(file, []byte("isobar head 1\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := call(t, "checkpoint", "list", data); code != exitFailed || !strings.Contains(errOut, file+": damaged") {
		t.Errorf("damaged head: exit code %d, %s", code, errOut)
	}
}

func TestMissingStoreIsNotCreated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for _, store := range []string{dir, "file://" + filepath.ToSlash(dir), "s3://bucket/x", t.TempDir()} {
		if code, _, errOut := call(t, "checkpoint", "list", store); code != exitFailed || !strings.HasPrefix(errOut, "isobar: ") {
			t.Errorf("%s: exit code %d, %q", store, code, errOut)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was created")
	}
}

func TestConfigPrintsTheTable(t *testing.T) {
	contains(t, []string{"config"}, "transaction.max.pending.batch = 2\n", "checkpoint.retained = 3\n")
	out := contains(t, []string{"config", "topology.frame.tuples"}, "topology.frame.tuples = 1024\n    (a whole number from 64 to 65536, per topology)\n")
	if strings.Contains(out, "checkpoint") {
		t.Errorf("one key prints %q", out)
	}
	if code, _, errOut := call(t, "config", "topology.frame.tuple"); code != exitFailed || !strings.Contains(errOut, "did you mean topology.frame.tuples?") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}

func TestConfigEffectiveTellsWhereValuesComeFrom(t *testing.T) {
	t.Chdir(t.TempDir())
	file := "isobar.yaml"
	if err := os.WriteFile(file, []byte("checkpoint.retained: 5\nuser.name: x\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, out, _ := call(t, "config", "--effective", "--config", file, "-c", "topology.key.groups=8")
	for _, want := range []string{"checkpoint.retained 5 (" + file + ")", "topology.key.groups 8 (-c)",
		"transaction.topology true (default)", "user.name x (" + file + ")"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
}

func TestExitCodesTellUsageFromFailure(t *testing.T) {
	for want, lines := range map[int][]string{
		exitOK:    {"", "version", "--help", "checkpoint", "checkpoint list --help"},
		exitUsage: {"frobnicate", "checkpoint frobnicate", "checkpoint list", "checkpoint list a b c", "checkpoint verify --all a b 1.1", "checkpoint pin a b", "checkpoint prune --keep 0 a", "state get a", "txn rollback --to 1.1", "checkpoint list --yaml a", "version 2", "config a b"},
	} {
		for _, line := range lines {
			code, out, errOut := call(t, strings.Fields(line)...)
			if code != want {
				t.Errorf("isobar %s: exit code %d, want %d: %s", line, code, want, errOut)
			}
			if want == exitOK && (out == "" || errOut != "") || want == exitUsage && (out != "" || !strings.Contains(errOut, "--help")) {
				t.Errorf("isobar %s prints %q and %q", line, out, errOut)
			}
		}
	}
	contains(t, []string{"version"}, "isobar 0.")
}

func TestCommandsSayWhatTheyTake(t *testing.T) {
	for line, want := range map[string]string{
		"list extra":             `isobar: list takes no arguments: given is ["extra"]`,
		"status":                 "isobar: status takes the name of a topology: none is given",
		"blob cat":               "isobar: cat takes KEY: none is given",
		"kill words -w abc":      "isobar: --wait abc: it must be a number",
		"logs words -f=maybe":    "isobar: --follow maybe: it must be true or false",
		"dev --port 99999":       "isobar: --port 99999: it must be a port",
		"dev --slots 0":          "isobar: --slots 0: at least 1 is needed",
		"dev --first-port 65534": "isobar: --first-port 65534, --slots 4: the ports must be from 1 to 65535",
	} {
		if code, out, errOut := call(t, strings.Fields(line)...); code != exitUsage || out != "" || !strings.HasPrefix(errOut, want) || strings.Contains(errOut, "strconv") {
			t.Errorf("isobar %s: exit code %d, %q, %q, want %q", line, code, out, errOut, want)
		}
	}
}

func TestOnlySomePositionsAreShown(t *testing.T) {
	var out bytes.Buffer
	u := &undone{Positions: make([]moved, positionsShown+3)}
	if err := u.print(&out); err != nil || strings.Count(out.String(), "position of") != positionsShown || !strings.Contains(out.String(), "positions of 3 more partitions; --json has all") {
		t.Errorf("%v, it prints\n%s", err, out.String())
	}
}
