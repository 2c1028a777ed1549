package cluster

import "testing"

func TestStartsAreInOrder(t *testing.T) {
	for _, c := range []struct {
		name, than string
		later      bool
	}{
		{"words-3-100/2", "words-3-100/1", true},
		{"words-3-100/1", "words-3-100/2", false},
		{"words-3-100/1", "words-3-100/1", false},
		{"words-4-101/1", "words-3-100/7", true},
		{"words-3-100/7", "words-4-101/1", false},
		{"words-4-100/1", "words-3-100/1", true},
		{"a-b-c-12-100/10", "a-b-c-9-99/11", true},
		{"words-3-100/1", "words-4-95/1", false}, // submitted again through a nimbus whose clock is behind
		{"words-4-95/1", "words-3-100/1", false},
		{"words-3-200/1", "words-900-100/1", false}, // after the store had lost everything
		{"", "words-3-100/1", false},
		{"something else", "words-3-100/1", false},
		{"words-3-100/1", "", false},
	} {
		if got := StartedLater(c.name, c.than); got != c.later {
			t.Errorf("%q later than %q: %t", c.name, c.than, got)
		}
	}
	if !StartedLater(StartName("w-1-5", 2), StartName("w-1-5", 1)) {
		t.Error("a later epoch is not later")
	}
}
