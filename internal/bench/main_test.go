package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func TestWrongFlagsAreAllNamed(t *testing.T) {
	_, err := parse([]string{"-workload", "x", "-shapes", "1/2,0/1/1", "-modes", "limit@5,exactly-once@0", "-rounds", "0"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"x"`, `"1/2"`, `"0/1/1"`, `"limit@5"`, `"exactly-once@0"`, "-rounds"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	base := []sample{{perSecond: 10}, {perSecond: 1000}, {perSecond: 100}}
	x := []sample{{perSecond: 5}, {perSecond: 400}, {perSecond: 60}}
	if got := ratio(x, base); got != 0.5 {
		t.Errorf("ratio = %v, want 0.5", got)
	}
	if got := ratio(x, nil); got != 0 {
		t.Errorf("ratio without a base = %v, want 0", got)
	}
	if got := median(base[:2], func(_ int, x sample) float64 { return x.perSecond }); got != 505 {
		t.Errorf("median of two = %v, want 505", got)
	}
}

func TestRowsAreJSONLines(t *testing.T) {
	var out bytes.Buffer
	args := []string{"-json", "-duration", "20ms", "-rounds", "1", "-shapes", "1/1/1,1/2/2", "-modes", "limit"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	var shapes []string
	for d := json.NewDecoder(&out); d.More(); {
		var r row
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Mode != "limit" || r.Workload != "fastwordcount" || r.PerSecond <= 0 || r.ToLimit != 1 || r.ToAtMostOnce != 0 {
			t.Errorf("row %+v", r)
		}
		shapes = append(shapes, r.Shape)
	}
	if !slices.Equal(shapes, []string{"1/1/1", "1/2/2"}) {
		t.Errorf("rows for shapes %q", shapes)
	}
}

func TestSpoutReplaysFromAPosition(t *testing.T) {
	w, err := newWorkload("fastwordcount")
	if err != nil {
		t.Fatal(err)
	}
	const tasks, task = 3, 2
	read := func(pos []byte, calls int) (lines []string, positions []txn.Position) {
		s := &lineSpout{lines: w.lines, tasks: tasks}
		ids, err := s.Partitions(t.Context())
		if err != nil || len(ids) != tasks || txn.PartitionTask(ids[task], tasks) != task {
			t.Fatalf("partitions %q (%v), the one of task %d should be there", ids, err, task)
		}
		if err := s.Seek(ids[task], pos); err != nil {
			t.Fatal(err)
		}
		var d txn.OutputDeclarer
		s.DeclareOutputFields(&d)
		streams, _ := d.Streams()
		out := txn.NewTestCollector(streams, func(_ string, vals []tuple.Value) {
			lines = append(lines, vals[0].Str())
		})
		for range calls {
			if _, err := s.NextTuple(out); err != nil {
				t.Fatal(err)
			}
		}
		if positions, err = s.FinishBatch(1); err != nil {
			t.Fatal(err)
		}
		return lines, positions
	}
	whole, _ := read(nil, 3)
	first, pos := read(nil, 1)
	rest, _ := read(pos[0].Data, 2)
	if !slices.Equal(whole, slices.Concat(first, rest)) {
		t.Error("reading on from a position gives other lines than reading through")
	}
}
