package checkpoint

import (
	"strings"
	"testing"
	"time"
)

// A manifest of format 1 says nothing of durations; otherwise it is the same.
func TestManifestsOfFormat1AreRead(t *testing.T) {
	data := sealed(`isobar manifest 1
{"topology":"t","runId":"r","region":"a","generation":1,"batch":2,"unixMilli":3,"engine":"0.1.0","tableFormat":"pebble-v7","keyGroups":8,"graph":"g","components":{"a":{"parallelism":1}},"tasks":[{"component":"a","index":0,"finished":true}]}
`)
	m, err := DecodeManifest("object-1", data)
	if err != nil {
		t.Fatal(err)
	}
	if m.TookMicros != 0 || m.Tasks[0].Took != (Took{}) || !m.Tasks[0].Finished || m.Batch != 2 {
		t.Errorf("it was read as %+v", m)
	}
}

func TestDurationsSurviveARoundTrip(t *testing.T) {
	m := exampleManifest()
	m.TookMicros, m.Tasks[0].Took, m.Tasks[1].Took = 9, Took{Copy: 3, Write: 4}, Took{Align: 5, Copy: 6, Write: 7}
	data, err := EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeManifest("object-1", data)
	if err != nil {
		t.Fatal(err)
	}
	if got.TookMicros != 9 || got.Tasks[0].Took != m.Tasks[0].Took || got.Tasks[1].Took != m.Tasks[1].Took || got.Tasks[1].Took.Total() != 18 {
		t.Errorf("it came back as %+v", got)
	}
	for want, spoil := range map[string]func(m *Manifest){
		"it took -1 microseconds":     func(m *Manifest) { m.TookMicros = -1 },
		"task count/1 took {Align:-2": func(m *Manifest) { m.Tasks[1].Took.Align = -2 },
		"Copy:-3":                     func(m *Manifest) { m.Tasks[1].Took.Copy = -3 },
		"Write:-4":                    func(m *Manifest) { m.Tasks[1].Took.Write = -4 },
	} {
		m := exampleManifest()
		spoil(m)
		if _, err := EncodeManifest(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestMicrosRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, time.Second: 1e6} {
		if got := Micros(d); got != want {
			t.Errorf("%v are %d microseconds, want %d", d, got, want)
		}
	}
}
