package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestWrongFlagsAreAllNamed(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"-workload x,chain", []string{`"x"`, `"restore"`}},
		{"-shapes 1/2,0/1/1 -modes limit@5,exactly-once@0,at-least-once -rounds 0",
			[]string{`"1/2"`, `"0/1/1"`, `"limit@5"`, `"exactly-once@0"`, `"at-least-once"`, "-rounds"}},
		{"-workload latency -modes limit -loads 0,x -warmup -1s", []string{`"limit"`, `load "0"`, `load "x"`, "-warmup"}},
		{"-workload state -modes limit -keys 1 -dist normal -interval 0s -cache-mb -1",
			[]string{`"limit"`, `"1"`, `"normal"`, "-interval", "-cache-mb"}},
		{"-workload restore -state-mb 0", []string{"-state-mb"}},
		{"-workload checkpoint -state-mb 5,x -modes tape -changes 0 -entry-bytes 12", []string{`"x"`, `"tape"`, "-changes", "-entry-bytes"}},
		{"-workload chain,idle -shapes 1/1/1 -keys 10", []string{"-shapes means nothing", "-keys means nothing"}},
		{"-workload all -modes exactly-once@5 extra", []string{`"extra"`, `workload state: mode "exactly-once@5"`}},
	} {
		_, _, err := parse(strings.Fields(c.args))
		if err == nil {
			t.Errorf("%s: no error", c.args)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not name %s: %v", c.args, want, err)
			}
		}
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	base := []sample{{0, 10}, {0, 1000}, {0, 100}}
	x := []sample{{0, 5}, {0, 400}, {0, 60}}
	if got := ratio(x, base, 1); got != 0.5 {
		t.Errorf("ratio = %v, want 0.5", got)
	}
	if got := ratio(x, nil, 1); !math.IsNaN(got) {
		t.Errorf("ratio without a base = %v, want none", got)
	}
	if got := medianOf(base[:2], 1); got != 505 {
		t.Errorf("median of two = %v, want 505", got)
	}
}

func TestReportShowsMediansAndRatios(t *testing.T) {
	c := comparison{
		label:    "this",
		columns:  []column{{"per_s", "M/s", 1e6, 1}, {"pause_ms", "pause", 1, 2}},
		bases:    []string{"by-hand", "gone"},
		variants: []variant{{name: "by-hand"}, {name: "engine"}},
		targets:  map[string]string{"pause_ms": "≤ 4", "ratio_to_by_hand": "≥ 0.9"},
		skipped:  []skipped{{"by-magic", "there is none"}},
	}
	samples := [][]sample{{{4e6, math.NaN()}, {8e6, math.NaN()}}, {{1e6, 3}, {4e6, 5}}}
	var out bytes.Buffer
	if err := c.report(&out, "test", samples, false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"this M/s pause to by-hand to gone", "by-hand 6.0 - 1.00 -", "engine 2.5 4.00 0.38 -",
		"target ≤ 4 ≥ 0.9", "by-magic is skipped: there is none"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the table is\n%swant %q", &out, want)
	}
	rows := rowsOf(t, func(out *bytes.Buffer) error { return c.report(out, "test", samples, true) })
	if want := "[map[case:this mode:by-hand per_s:6e+06 ratio_to_by_hand:1 workload:test] " +
		"map[case:this mode:engine pause_ms:4 per_s:2.5e+06 ratio_to_by_hand:0.375 workload:test] " +
		"map[case:this mode:by-magic skipped:there is none workload:test]]"; fmt.Sprint(rows) != want {
		t.Errorf("the rows are %v, want %s", rows, want)
	}
}

func TestVariantsTakeTurnsBetweenOpenAndClose(t *testing.T) {
	var log []string
	note := func(what string) { log = append(log, what) }
	turn := func(name string) variant {
		return variant{name, func(context.Context) (sample, error) { note(name); return sample{1}, nil }}
	}
	c := comparison{
		variants: []variant{turn("a"), turn("b")},
		open:     func(context.Context) error { note("open"); return nil },
		close:    func() error { note("close"); return nil },
	}
	samples, err := c.measure(t.Context(), 2)
	if err != nil || fmt.Sprint(samples) != "[[[1] [1]] [[1] [1]]]" {
		t.Errorf("samples %v, %v", samples, err)
	}
	if got := strings.Join(log, " "); got != "open a b a b close" {
		t.Errorf("the order is %s", got)
	}
}

// rowsOf returns the JSON lines that fn writes.
func rowsOf(t *testing.T, fn func(out *bytes.Buffer) error) (rows []map[string]any) {
	t.Helper()
	var out bytes.Buffer
	if err := fn(&out); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(&out); d.More(); {
		var row map[string]any
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// bench runs the command and returns its rows by case and mode.
func bench(t *testing.T, args string) map[string]map[string]any {
	t.Helper()
	rows := map[string]map[string]any{}
	for _, row := range rowsOf(t, func(out *bytes.Buffer) error {
		return run(t.Context(), append(strings.Fields(args), "-json", "-rounds", "1", "-warmup", "5ms"), out)
	}) {
		rows[fmt.Sprint(row["case"], " ", row["mode"])] = row
	}
	return rows
}

// checkRow checks that a row has numbers of these keys that are more than 0.
func checkRow(t *testing.T, rows map[string]map[string]any, name string, positive ...string) {
	t.Helper()
	row := rows[name]
	if row == nil {
		t.Errorf("there is no row %q in %v", name, rows)
		return
	}
	for _, key := range positive {
		if x, ok := row[key].(float64); !ok || x <= 0 {
			t.Errorf("%s: %s is %v, want more than 0", name, key, row[key])
		}
	}
}

func TestWordCount(t *testing.T) {
	rows := bench(t, "-workload fastwordcount -duration 20ms -shapes 1/1/1,1/2/2 -modes limit,exactly-once@10")
	for _, shape := range []string{"1/1/1", "1/2/2"} {
		for _, mode := range []string{"limit", "exactly-once@10"} {
			checkRow(t, rows, shape+" "+mode, "tuples_per_s", "ns_per_tuple", "cpu_ns_per_tuple", "tuples_per_s_per_core", "ratio_to_limit")
		}
	}
	if len(rows) != 4 || rows["1/2/2 limit"]["ratio_to_limit"] != 1.0 || rows["1/2/2 limit"]["ratio_to_at_most_once"] != nil {
		t.Errorf("rows %v", rows)
	}
}

func TestRestore(t *testing.T) {
	rows := bench(t, "-workload restore -state-mb 2")
	checkRow(t, rows, "2 MB limit", "mb_per_s", "ms")
	for _, name := range []string{"2 MB 2 tasks", "2 MB 4 tasks"} {
		checkRow(t, rows, name, "mb_per_s", "ms", "open_ms", "fetch_ms", "ingest_ms", "output_ms", "ratio_to_limit")
		row := rows[name]
		total := 0.0
		for _, key := range []string{"open_ms", "fetch_ms", "ingest_ms", "output_ms"} {
			total += row[key].(float64)
		}
		ms := row["ms"].(float64)
		if math.Abs(total-ms) > 1e-6*ms || row["committed_ms"].(float64) < ms {
			t.Errorf("%s: the parts of %v ms are %v ms: %v", name, ms, total, row)
		}
		if mb := row["mb_per_s"].(float64) * ms / 1e3; mb < 2 || mb > 2.3 {
			t.Errorf("%s: it has restored %v MB, want 2", name, mb)
		}
	}
}

func TestIdle(t *testing.T) {
	rows := bench(t, "-workload idle -duration 20ms -modes at-most-once,exactly-once@10")
	for _, name := range []string{"20 tasks at-most-once", "20 tasks exactly-once@10"} {
		checkRow(t, rows, name)
		if x := rows[name]["cpu_percent"].(float64); x < 0 || x > 100*128 {
			t.Errorf("%s takes %v %% of a core", name, x)
		}
	}
}
