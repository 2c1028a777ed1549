package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/txn"
)

// holding makes a data folder whose only checkpoint is what change makes of a manifest.
func holding(t *testing.T, change func(m *checkpoint.Manifest)) (data string) {
	t.Helper()
	data = t.TempDir()
	store, err := filestore.Open(filepath.Join(data, "checkpoints", "words"))
	if err != nil {
		t.Fatal(err)
	}
	m := manifest("count", 1, 1)
	change(m)
	b, err := checkpoint.EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	ref := checkpoint.Ref{Generation: 1, Batch: 1, Manifest: checkpoint.ManifestName(1, 1, "count", "x"), Size: int64(len(b)), CRC32C: checkpoint.CRC(b)}
	if err := store.Put(t.Context(), ref.Manifest, bytes.NewReader(b), ref.Size, ref.CRC32C); err != nil {
		t.Fatal(err)
	}
	head(t, store, &checkpoint.Head{Topology: "words", RunID: "run-1", Generation: 1, Writer: "w1",
		Regions: map[string]checkpoint.RegionHead{"count": {Generation: 1, Retained: []checkpoint.Ref{ref}}}})
	return data
}

func TestShowTellsHowLongItTook(t *testing.T) {
	data := holding(t, func(m *checkpoint.Manifest) {
		m.TookMicros = 1_234_567
		m.Components["count"] = checkpoint.ComponentMeta{Parallelism: 2, Keyed: true}
		m.Tasks = []checkpoint.TaskSnapshot{
			{Component: "lines", Took: checkpoint.Took{Copy: 5_000, Write: 12}},
			{Component: "count", Index: 0, Took: checkpoint.Took{Align: 80_000, Copy: 7, Write: 700_000}},
			{Component: "count", Index: 1, Took: checkpoint.Took{Align: 90_500, Copy: 9, Write: 60_049}},
			{Component: "sink"},
		}
	})
	out := contains(t, []string{"checkpoint", "show", data})
	want := `    took 1.23s from the barrier to the manifest
        slowest task: 780ms, count/0
        align: 171ms in all tasks, the longest 90.5ms, count/1
        copy: 5.02ms in all tasks, the longest 5ms, lines/0
        write: 760ms in all tasks, the longest 700ms, count/0
    256 key groups`
	if !strings.Contains(out, want) {
		t.Errorf("show prints\n%s\nwithout\n%s", out, want)
	}
	for _, want := range []string{"Task lines/0\n    took align 0s, copy 5ms, write 12µs\n", "Task count/1\n    took align 90.5ms, copy 9µs, write 60ms\n", "Task sink/0\n    took -\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("show prints\n%s\nwithout %q", out, want)
		}
	}
	contains(t, []string{"checkpoint", "show", data, "--json"}, `"tookMicros": 1234567`, `"alignMicros": 90500`, `"copyMicros": 9`, `"writeMicros": 60049`)
	old := holding(t, func(*checkpoint.Manifest) {})
	if out := contains(t, []string{"checkpoint", "show", old}, "    took -\n    256 key groups"); strings.Count(out, "took -") != 1+3 {
		t.Errorf("of a checkpoint that does not tell how long it took, show prints\n%s", out)
	}
}

func TestShowTellsHowLongARunTook(t *testing.T) {
	data, _, _, _ := counted(t)
	var got []checkpoint.Manifest
	if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "show", data, "--json"})), &got); err != nil {
		t.Fatal(err)
	}
	for _, task := range got[0].Tasks {
		if task.Took.Write <= 0 || task.Took.Total() > got[0].TookMicros+3 { // rounded up
			t.Errorf("task %s/%d took %+v of the checkpoint's %d microseconds", task.Component, task.Index, task.Took, got[0].TookMicros)
		}
	}
	contains(t, []string{"checkpoint", "show", data}, "from the barrier to the manifest", "slowest task: ", "write: ")
}

func TestShowCutsHandlesOff(t *testing.T) {
	long := strings.Repeat("0123456789", 5000)
	for want, handle := range map[string][]byte{
		"0 bytes":                       nil,
		"10 bytes: prepared-9":          []byte("prepared-9"),
		"3 bytes":                       {0, 1, 2},
		"1 bytes":                       {'\n'},
		"50.0 kB: " + long[:60] + "…":   []byte(long),
		`15 bytes: {"id": ["x"]}`:       []byte("{\"id\":\n\t[\"x\"]}\n"),
		"60 bytes: " + long[:60]:        []byte(long[:60]),
		"63 bytes: " + long[:59] + "µ…": []byte(long[:59] + "µab"),
	} {
		data := holding(t, func(m *checkpoint.Manifest) {
			m.Tasks = append(m.Tasks[:2:2], checkpoint.TaskSnapshot{Component: "sink", Handles: []txn.Handle{{Batch: 1, Generation: 1, Data: handle}}})
		})
		contains(t, []string{"checkpoint", "show", data}, fmt.Sprintf("    transaction 1.1: %s\n", want))
	}
}
