package pebblestate

import (
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// ownedBy returns the cut of a task that owns [from, to).
func ownedBy(cut *txn.Cut, from, to int) *txn.Cut {
	owned := &txn.Cut{Batch: cut.Batch}
	for _, r := range cut.Records {
		if g := int(r.Key[1]); g >= from && g < to {
			owned.Records = append(owned.Records, r)
		}
	}
	return owned
}

// Case: of two tasks only one has written a new base since they became two. The delta of
// before then counts for the groups of the other, and what it says of the first one's
// groups is older than their base, which comes before it in the chain.
func TestWhatABaseHasReplacedStaysVoid(t *testing.T) {
	const half = groups / 2
	for based := range 2 {
		o := newOpener(t, t.TempDir(), memstore.New())
		both := apply(t, openState(t, o, config(1, 0)), plus(1))
		var files []checkpoint.FileRef
		for task := range 2 {
			c := config(2, 1, both...)
			c.TaskID, c.GroupFrom, c.GroupTo = checkpoint.TaskID(task), task*half, (task+1)*half
			s := openState(t, o, c)
			apply(t, s, ownedBy(plus(2), c.GroupFrom, c.GroupTo))
			if task == based {
				s.startBase()
				s.bases.Wait()
			}
			files = append(files, apply(t, s, ownedBy(plus(3), c.GroupFrom, c.GroupTo))...)
		}
		restored := openState(t, o, config(3, 3, files...))
		checkSums(t, restored, 3)
		if got := rows(t, restored, 3); got != groups {
			t.Errorf("there are %d rows, want %d", got, groups)
		}
	}
}

// A task takes the rows of others' groups with the files, and nobody may see them: not in
// a range, not in a base, not after a compaction.
func TestRowsOfOthersAreNotThere(t *testing.T) {
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	s := openState(t, o, config(1, 0))
	apply(t, s, cutOf(1, 0, 100, "x"))
	files := apply(t, s, cutOf(2, 50, 150, "y"))
	for i, owned := range []span{{0, 5}, {5, 11}, {11, groups}, {3, 4}} {
		want := 150 * (owned.to - owned.from)
		c := config(checkpoint.Generation(i+2), 2, files...)
		c.GroupFrom, c.GroupTo = owned.from, owned.to
		s := openState(t, o, c)
		check := func(when string) {
			t.Helper()
			got := 0
			err := s.Range(nil, nil, func(key, _ []byte) error {
				if g, err := groupOf(key); err != nil || g < owned.from || g >= owned.to {
					t.Errorf("%s the task of %+v has the key %x", when, owned, key)
				}
				got++
				return nil
			})
			if err != nil || got != want || rows(t, s, s.applied) != want {
				t.Errorf("%s the task of %+v has %d rows in all and %d in its view, want %d; %v", when, owned, got, rows(t, s, s.applied), want, err)
			}
		}
		check("restored,")
		s.startBase()
		s.bases.Wait()
		s.compact()
		check("compacted,")
		based := apply(t, s, ownedBy(cutOf(3, 0, 1, "z"), owned.from, owned.to))
		check("after another batch,")
		if !based[0].Base || len(based) != 2 {
			t.Fatalf("the chain is %+v", based)
		}
		c = config(checkpoint.Generation(i+100), 3, based...)
		if got := rows(t, openState(t, o, c), 3); got != want {
			t.Errorf("what the task of %+v has written holds %d rows, want %d", owned, got, want)
		}
	}
}

func TestFilesWithoutRowsThatCountAreLeftOut(t *testing.T) {
	o := newOpener(t, t.TempDir(), memstore.New())
	s := openState(t, o, config(1, 0))
	files := apply(t, s, ownedBy(cutOf(1, 0, 10, "x"), 4, 8))
	for _, owned := range []span{{0, 4}, {8, groups}} {
		c := config(checkpoint.Generation(2+owned.from), 1, files...)
		c.GroupFrom, c.GroupTo = owned.from, owned.to
		if s := openState(t, o, c); !s.Empty() || s.Stats().Tables != 0 {
			t.Errorf("the task of %+v has %+v", owned, s.Stats())
		}
	}
}

// The last key group there can be has no group after it.
func TestTheLastKeyGroup(t *testing.T) {
	const all = 1 << 16
	o := newOpener(t, t.TempDir(), memstore.New())
	c := config(1, 0)
	c.GroupTo = all
	s := openState(t, o, c)
	cut := &txn.Cut{Batch: 1}
	for _, g := range []int{0, 1, all - 2, all - 1} {
		cut.Records = append(cut.Records, txn.Record{Key: txn.AppendStateKey(nil, g, 1, []byte("k")), Value: []byte("v")})
	}
	files := apply(t, s, cut)
	for i, c := range []struct {
		owned span
		want  int
	}{{span{0, all}, 4}, {span{1, all}, 3}, {span{all - 1, all}, 1}, {span{0, all - 1}, 3}, {span{2, all - 2}, 0}} {
		config := config(checkpoint.Generation(i+2), 1, files...)
		config.GroupFrom, config.GroupTo = c.owned.from, c.owned.to
		if got := rows(t, openState(t, o, config), 1); got != c.want {
			t.Errorf("the task of %+v has %d rows, want %d", c.owned, got, c.want)
		}
	}
}
