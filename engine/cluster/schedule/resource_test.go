package schedule

import (
	"slices"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Breadth first from the spouts, whatever the order in which components were declared.
func TestNeighbours(t *testing.T) {
	components := []cluster.ComponentSpec{
		component("sink", 1, 1, "left", "right"),
		component("right", 2, 2, "in"),
		component("in", 4, 3),
		component("island", 7, 1, "nowhere"),
		component("left", 8, 2, "in", "other"),
		component("other", 10, 1),
	}
	want := []int{4, 10, 2, 8, 1, 7, 5, 3, 9, 6}
	if got := neighbours(components); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
