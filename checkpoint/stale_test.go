package checkpoint

import (
	"strings"
	"testing"
)

func TestOldHeadsAreToldFromTheNewest(t *testing.T) {
	head := &Head{Topology: "t", Generation: 5, Regions: map[string]RegionHead{
		"a-b.c": {Generation: 5, Retained: []Ref{{Generation: 3, Batch: 7}, {Generation: 5, Batch: 9}}},
		"other": {Generation: 4, Retained: []Ref{{Generation: 4, Batch: 20}}},
		"fresh": {Generation: 2},
	}}
	mf := func(g Generation, n BatchID, region string) string { return ManifestName(g, n, region, "0123abcd") }
	for name, c := range map[string]struct {
		objects []string
		wrong   string // empty: none
	}{
		"what it names":                   {[]string{mf(3, 7, "a-b.c"), mf(5, 9, "a-b.c"), mf(4, 20, "other")}, ""},
		"a manifest before its head":      {[]string{mf(5, 10, "a-b.c"), mf(4, 21, "other"), mf(2, 1, "fresh")}, ""},
		"the same batch twice":            {[]string{mf(5, 10, "a-b.c"), ManifestName(5, 10, "a-b.c", "ff")}, ""},
		"what older generations left":     {[]string{mf(4, 30, "a-b.c"), mf(4, 31, "a-b.c"), mf(3, 50, "other"), mf(3, 51, "other")}, ""},
		"two batches beyond":              {[]string{mf(5, 10, "a-b.c"), mf(5, 11, "a-b.c")}, `5.10 and 5.11 of region "a-b.c"`},
		"two beyond a region's beginning": {[]string{mf(2, 1, "fresh"), mf(2, 2, "fresh")}, "2.1 and 2.2"},
		"a newer generation":              {[]string{DataName(6, "count", 0, 1, "x")}, "generation 5"},
		"no object of ours":               {[]string{"manifest/x", "manifest/0000000000000005.00000000000000ff", "else"}, ""},
	} {
		var objects []ObjectInfo
		for _, o := range c.objects {
			objects = append(objects, ObjectInfo{Name: o})
		}
		err := CheckNewest(head, objects)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: error %v, want %q", name, err, c.wrong)
		}
	}
}
