package main

import (
	"strings"
	"testing"
)

func TestLimitCountsEveryWordOnce(t *testing.T) {
	for _, name := range []string{"fastwordcount", "wordcount"} {
		for _, s := range []shape{{1, 1, 1}, {2, 2, 3}} {
			t.Run(name+" "+s.String(), func(t *testing.T) {
				text, err := textOf(name)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]int64{}
				for _, line := range text {
					for _, word := range strings.FieldsFunc(line, func(r rune) bool { return r < 'a' || r > 'z' }) {
						want[word] += int64(s.spouts)
					}
				}
				counted := make([]paddedCounter, s.counts)
				got := map[string]int64{}
				var total int64
				for _, table := range runLimit(t.Context(), text, s, 1, counted) {
					for _, slot := range table.slots {
						if slot.word != "" {
							got[slot.word] += slot.count
							total += slot.count
						}
					}
				}
				if len(got) != len(want) {
					t.Errorf("%d distinct words, want %d", len(got), len(want))
				}
				for word, n := range want {
					if got[word] != n {
						t.Errorf("%q was counted %d times, want %d", word, got[word], n)
					}
				}
				if n := sum(counted); n != total {
					t.Errorf("the counters say %d, the tables hold %d", n, total)
				}
			})
		}
	}
}
