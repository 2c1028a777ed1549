package cluster

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// StartName names the start of an epoch of a topology, as checkpoints remember it.
func StartName(id string, epoch uint64) string { return fmt.Sprintf("%s/%d", id, epoch) }

// StartedLater reports whether a start was wanted after another one: that of a later epoch
// of the same topology, or of one that was submitted later. Of what is no name of a start it
// is not known, so it is false.
func StartedLater(name, than string) bool {
	a, b := startOrder(name), startOrder(than)
	if a == nil || b == nil {
		return false
	}
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), cmp.Compare(a[2], b[2])) > 0
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
