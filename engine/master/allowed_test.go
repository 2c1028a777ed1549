package master

import (
	"errors"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
)

// A start whose process died when only some regions had begun goes on with the rest, also
// if it is known here that it had begun. One in whose place another has come ends, although
// that has not come to all regions yet.
func TestStartThatHasBegunInPart(t *testing.T) {
	region := func(started string, at, now checkpoint.Generation) checkpoint.RegionHead {
		return checkpoint.RegionHead{Generation: now, Started: started, StartedAt: at}
	}
	later := func(once string) bool { return once == "words-1-1/3" }
	for _, c := range []struct {
		name     string
		a, b     checkpoint.RegionHead
		begun    bool
		replaced bool
	}{
		{"the first of its epoch", region("words-1-1/1", 1, 3), region("words-1-1/1", 2, 4), false, false},
		{"it died between two regions", region("words-1-1/2", 5, 5), region("words-1-1/1", 2, 4), true, false},
		{"and was moved to another machine", region("words-1-1/2", 5, 5), region("words-1-1/1", 2, 4), false, false},
		{"all have begun", region("words-1-1/2", 5, 9), region("words-1-1/2", 6, 8), true, false},
		{"a region without a name", region("words-1-1/2", 5, 9), region("", 0, 2), true, false},
		{"another has come", region("other-1-1/1", 7, 7), region("other-1-1/1", 8, 8), true, true},
		{"another has begun to come", region("other-1-1/1", 7, 7), region("words-1-1/2", 6, 6), true, true},
		{"which is seen from another machine too", region("words-1-1/2", 5, 5), region("other-1-1/1", 7, 7), false, true},
		{"a later one has come", region("words-1-1/3", 7, 7), region("words-1-1/3", 8, 8), false, true},
		{"a later one has begun to come", region("words-1-1/3", 7, 7), region("words-1-1/2", 6, 6), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &checkpoint.Head{Regions: map[string]checkpoint.RegionHead{"a": c.a, "b": c.b}}
			err := Start{From: "latest", Once: "words-1-1/2", Begun: c.begun, Later: later}.allowed(h, "words")
			if errors.Is(err, ErrReplaced) != c.replaced || err != nil && !c.replaced {
				t.Errorf("%v, replaced should be %t", err, c.replaced)
			}
		})
	}
}

// Without a head a start begins from nothing only if there cannot have been one: invariant
// I10.
func TestStartThatMissesItsHead(t *testing.T) {
	for _, c := range []struct {
		name   string
		start  Start
		missed bool
	}{
		{"new", Start{From: FromNew, Once: "x"}, false},
		{"of which nothing is known", Start{Once: "x"}, false},
		{"from what there must be, which was there", Start{From: FromLatest, Once: "x", Kept: true}, true},
		{"had begun", Start{From: FromNew, Once: "x", Begun: true}, true},
		{"of a topology that has run", Start{From: FromNew, Once: "x", Kept: true}, true},
		{"after an update", Start{Once: "x", Unmoved: map[string]string{"a": "", "b": "3.17"}}, true},
		{"after an update without a commit", Start{Once: "x", Unmoved: map[string]string{"a": ""}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.start.allowed(nil, "words")
			if errors.Is(err, ErrStoreUnreachable) != c.missed || err != nil && !c.missed {
				t.Errorf("%v, missed should be %t", err, c.missed)
			}
		})
	}
}
