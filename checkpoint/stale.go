package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// CheckNewest returns an error if objects, those of a store, show that h is not the
// newest head that the store has had: somebody has put an older copy back, and to go on
// from it would do again what is done. Objects of a generation are written only once the
// head has it, and a region's next manifest only when the head has its last; so none is
// of a later generation, and beyond the current checkpoint there is at most one batch's.
// An older head that lacks no more than the last step cannot be told from a crash.
func CheckNewest(h *Head, objects []ObjectInfo) error {
	regions := map[string]string{}
	for name := range h.Regions {
		regions[nameSafe(name)] = name
	}
	beyond := map[string]BatchID{}
	for _, o := range objects {
		g, ok := NameGeneration(o.Name)
		if ok && g > h.Generation {
			return fmt.Errorf("it is of generation %d, and %s was written by generation %d", h.Generation, o.Name, g)
		}
		safe, batch, ok := manifestParts(o.Name)
		region, known := regions[safe]
		if !ok || !known || g != h.Regions[region].Generation {
			continue
		}
		current := h.Regions[region].Current()
		if current != nil && current.Generation == g && batch <= current.Batch {
			continue
		}
		if other, found := beyond[region]; found && other != batch {
			return fmt.Errorf("it does not name the checkpoints %d.%d and %d.%d of region %q, one of which was committed", g, other, g, batch, region)
		}
		beyond[region] = batch
	}
	return nil
}

// manifestParts takes the name of a manifest apart; region is as nameSafe writes it.
func manifestParts(name string) (region string, batch BatchID, ok bool) {
	rest, ok := strings.CutPrefix(name, manifestPrefix)
	if !ok || len(rest) < 34 || rest[16] != '.' || rest[33] != '-' {
		return "", 0, false
	}
	n, err := strconv.ParseUint(rest[17:33], 16, 64)
	end := strings.LastIndexByte(rest, '-')
	if err != nil || end <= 33 {
		return "", 0, false
	}
	return rest[34:end], BatchID(n), true
}
