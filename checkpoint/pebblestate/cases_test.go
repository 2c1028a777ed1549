package pebblestate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// Case: the local file of a snapshot was lost before it had been uploaded, and the
// snapshot was published without it. The batch must fail, and be written anew when it
// is tried again.
func TestStagedFileThatIsLostIsWrittenAgain(t *testing.T) {
	for name, spoilt := range map[string]struct {
		step  string
		spoil func(path string) error
	}{
		"removed":       {"sst.after", os.Remove},
		"cut short":     {"sst.after", func(path string) error { return os.Truncate(path, 100) }},
		"removed later": {"ingest.before", os.Remove},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			var s *state
			c := config(1, 0)
			c.Hook = func(step string) {
				if step == spoilt.step && spoilt.spoil != nil {
					if err := spoilt.spoil(s.filePath("delta-1")); err != nil {
						t.Error(err)
					}
					spoilt.spoil = nil
				}
			}
			o := newOpener(t, t.TempDir(), store)
			s = openState(t, o, c)
			cut := cutOf(1, 0, 100, "x")
			if files, err := s.Apply(t.Context(), cut); err == nil {
				t.Fatalf("applied as %+v without its file", files)
			}
			var files []checkpoint.FileRef
			var err error
			for range 3 {
				if files, err = s.Apply(t.Context(), cut); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatalf("it does not recover: %v", err)
			}
			if got := rows(t, openState(t, o, config(2, 1, files...)), 1); got != 100*groups {
				t.Errorf("restored are %d rows, want %d", got, 100*groups)
			}
		})
	}
}

// Case: a batch beyond what the store can hold in one piece made it panic, and nothing
// could be restored any more. Here the pieces are far larger than the memory table,
// and are clipped on the way.
func TestStateLargerThanABatchOfTheStoreIsRestored(t *testing.T) {
	const each = memTableBytes / groups // four times the table in one cut, and a value twice as large
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	s := openState(t, o, config(1, 0))
	cut := cutOf(1, 0, 4, strings.Repeat("v", each))
	huge := bytes.Repeat([]byte("h"), 2*memTableBytes)
	key := txn.AppendStateKey(nil, groups-1, 1, []byte("huge"))
	cut.Records = append(cut.Records, txn.Record{Key: key, Value: huge})
	files := apply(t, s, cut)
	for tasks := range 3 {
		total := 0
		for task := range tasks + 1 {
			c := config(checkpoint.Generation(tasks+2), 1, files...)
			c.TaskID = checkpoint.TaskID(task)
			c.GroupFrom, c.GroupTo = task*groups/(tasks+1), (task+1)*groups/(tasks+1)
			restored := openState(t, o, c)
			total += rows(t, restored, 1)
			got, _, err := restored.Get(key)
			if owner := task == tasks; err != nil || (got != nil) != owner || owner && !bytes.Equal(got, huge) {
				t.Errorf("task %d of %d holds the huge value: %d bytes, %v", task, tasks+1, len(got), err)
			}
		}
		if want := 4*groups + 1; total != want {
			t.Errorf("%d tasks restored %d rows, want %d", tasks+1, total, want)
		}
	}
}

// Case: what a snapshot had stored before it failed was left behind for ever. Here bases
// fail half-way, as during an outage of the store.
func TestBasesThatFailLeaveNoObjects(t *testing.T) {
	store := &gatedStore{Store: memstore.New()}
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	s.baseFileBytes = 4 << 10
	named := map[string]bool{}
	n := checkpoint.BatchID(0)
	next := func(cut *txn.Cut) (files []checkpoint.FileRef) {
		n++
		cut.Batch = n
		files = apply(t, s, cut)
		for _, f := range files {
			named[f.Name] = true
		}
		return files
	}
	next(cutOf(0, 0, 300, "some value that takes room"))
	for failAt := range int32(4) {
		var puts atomic.Int32
		outage := func(context.Context) error {
			if puts.Add(1) > failAt {
				return errors.New("outage")
			}
			return nil
		}
		store.put.Store(&outage)
		s.startBase()
		s.bases.Wait()
		store.put.Store(nil)
		if files := next(cutOf(0, 0, 1, "x")); files[0].Base {
			t.Fatalf("a base was written in spite of the outage: %+v", files)
		}
	}
	s.startBase()
	s.bases.Wait()
	if files := next(cutOf(0, 0, 1, "y")); len(files) < 3 || !files[0].Base {
		t.Fatalf("the chain is %+v", files)
	}
	for o, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !named[o.Name] {
			t.Errorf("%s is left, and no chain has ever named it", o.Name)
		}
		delete(named, o.Name)
	}
	if len(named) > 0 {
		t.Errorf("%d objects that were named are gone", len(named))
	}
}

// Case: one value beyond what the store can hold made it panic, again after each restart.
// It must be named instead, and be no harm to the others.
func TestValueBeyondWhatATableCanHoldIsNamed(t *testing.T) {
	const most = 1000
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	s := openState(t, o, config(1, 0))
	s.rowBytesMax = most
	key := txn.AppendStateKey(nil, 3, 1, []byte("the key"))
	cut := cutOf(1, 0, 4, "small")
	cut.Records = append(cut.Records, txn.Record{Key: key, Value: make([]byte, most-len(key)+1)})
	_, err := s.Apply(t.Context(), cut)
	for _, want := range []string{`state "n"`, `"the key"`, "990 bytes", "1000"} {
		if err == nil || !txn.IsFatal(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it does not say %s", err, want)
		}
	}
	if got := rows(t, openState(t, o, config(2, 0)), 0); got != 0 {
		t.Errorf("%d rows of the batch are there", got)
	}
	s = openState(t, o, config(3, 0))
	s.rowBytesMax = most
	cut.Records[len(cut.Records)-1].Value = make([]byte, most-len(key))
	if got := rows(t, openState(t, o, config(4, 1, apply(t, s, cut)...)), 1); got != 4*groups+1 {
		t.Errorf("restored are %d rows, want %d", got, 4*groups+1)
	}
}
