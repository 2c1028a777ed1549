package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// StartName names the start of an epoch of a topology, as checkpoints remember it.
func StartName(id string, epoch uint64) string { return fmt.Sprintf("%s/%d", id, epoch) }

// StartedLater reports whether it is certain that a start was wanted after another one: that
// of a later epoch of the same topology, or of one that was submitted later both by the
// clock, which may differ between two nimbuses, and by the counter, which begins anew when
// the coordination store has lost everything.
func StartedLater(name, than string) bool {
	a, b := startOrder(name), startOrder(than)
	switch {
	case a == nil || b == nil: // no name of a start
		return false
	case a[0] == b[0] && a[1] == b[1]:
		return a[2] > b[2]
	}
	return a[0] >= b[0] && a[1] > b[1]
}

// startOrder returns the seconds, the counter and the epoch of NAME-COUNTER-SECONDS/EPOCH.
func startOrder(name string) []uint64 {
	id, epoch, ok := strings.Cut(name, "/")
	parts := strings.Split(id, "-")
	if !ok || len(parts) < 3 {
		return nil
	}
	var order []uint64
	for _, text := range []string{parts[len(parts)-1], parts[len(parts)-2], epoch} {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil
		}
		order = append(order, n)
	}
	return order
}
