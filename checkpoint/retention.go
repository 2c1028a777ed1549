package checkpoint

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	manifestPrefix = "manifest/"
	dataPrefix     = "data/"
)

// ManifestName returns the object name of a manifest:
//
//	manifest/GENERATION.BATCH-REGION-UNIQUE
//
// with both numbers in 16 hexadecimal digits, so that names order by age. unique
// makes sure that no name is ever used for two contents.
func ManifestName(g Generation, batch BatchID, region, unique string) string {
	return fmt.Sprintf("%s%016x.%016x-%s-%s", manifestPrefix, g, batch, nameSafe(region), nameSafe(unique))
}

// DataName returns the object name of a part of a task's state:
//
//	data/GENERATION/COMPONENT-TASK-BATCH-UNIQUE
//
// with generation and batch in 16 hexadecimal digits. unique makes sure that no
// name is ever used for two contents.
func DataName(g Generation, component string, task int, batch BatchID, unique string) string {
	return fmt.Sprintf("%s%016x/%s-%d-%016x-%s", dataPrefix, g, nameSafe(component), task, batch, nameSafe(unique))
}

// nameSafe writes every byte that is no letter, digit, '-' or '_' as '.' and two
// hexadecimal digits, so that different names stay different.
func nameSafe(s string) string {
	var sb strings.Builder
	for _, b := range []byte(s) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_':
			sb.WriteByte(b)
		default:
			fmt.Fprintf(&sb, ".%02x", b)
		}
	}
	return sb.String()
}

// originalName undoes nameSafe.
func originalName(safe string) (string, error) {
	parts := strings.Split(safe, ".")
	for i, p := range parts[1:] {
		digits := p[:min(len(p), 2)]
		b, err := strconv.ParseUint(digits, 16, 8)
		if err != nil || len(digits) < 2 {
			return "", fmt.Errorf("%q is not the name of anything", safe)
		}
		parts[i+1] = string([]byte{byte(b)}) + p[2:]
	}
	return strings.Join(parts, ""), nil
}

// NameOwner returns what the name of an object says of its origin: the region of a manifest,
// or the component of a part of a task's state. Of a name that neither ManifestName nor
// DataName makes both are empty.
func NameOwner(name string) (region, component string) {
	if safe, _, ok := manifestParts(name); ok {
		region, _ = originalName(safe) // or it is of none
		return region, ""
	}
	if rest, ok := strings.CutPrefix(name, dataPrefix); ok && len(rest) > 17 {
		rest = rest[17:]
		for range 3 { // its unique end, the batch and the task
			rest = rest[:max(0, strings.LastIndexByte(rest, '-'))]
		}
		component, _ = originalName(rest)
	}
	return "", component
}

// NameGeneration returns the generation that wrote the object of this name. ok is
// false for a name that neither ManifestName nor DataName makes.
func NameGeneration(name string) (g Generation, ok bool) {
	rest, found := strings.CutPrefix(name, manifestPrefix)
	sep := byte('.')
	if !found {
		if rest, found = strings.CutPrefix(name, dataPrefix); !found {
			return 0, false
		}
		sep = '/'
	}
	if len(rest) < 17 || rest[16] != sep {
		return 0, false
	}
	n, err := strconv.ParseUint(rest[:16], 16, 64)
	return Generation(n), err == nil
}

// Deletable returns, in name order, the objects that dropped manifests name and no
// retained one does: invariant I8. The manifests themselves are not among them, a
// manifest does not know its name.
func Deletable(dropped, retained []*Manifest) []string {
	names := map[string]bool{}
	for name := range files(dropped) {
		names[name] = true
	}
	for name := range files(retained) {
		delete(names, name)
	}
	return slices.Sorted(maps.Keys(names))
}

// files yields the object names of all files that manifests name.
func files(manifests []*Manifest) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, m := range manifests {
			for _, t := range m.Tasks {
				for _, f := range t.Files {
					if !yield(f.Name) {
						return
					}
				}
			}
		}
	}
}

// Orphans returns, in the given order, the objects that no retained checkpoint
// names and no running generation can still come to name: those of a generation
// older than current, written before graceUntil (milliseconds since 1970). named
// holds the retained manifests and everything they name. An object whose name tells
// no generation is never an orphan.
func Orphans(objects []ObjectInfo, named map[string]bool, current Generation, graceUntil int64) []string {
	var orphans []string
	for _, o := range objects {
		g, ok := NameGeneration(o.Name)
		if ok && g < current && !named[o.Name] && o.UnixMilli < graceUntil {
			orphans = append(orphans, o.Name)
		}
	}
	return orphans
}
