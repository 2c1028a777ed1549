package pebblestate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// countedReads reads parts of objects and notes how large they are.
type countedReads struct {
	checkpoint.RangeReader
	reads []int
}

func (c *countedReads) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	c.reads = append(c.reads, len(p))
	return c.RangeReader.ReadAt(ctx, name, p, off)
}

// spoilt has one object, of any name.
type spoilt []byte

func (s spoilt) ReadAt(_ context.Context, _ string, p []byte, off int64) error {
	_, err := bytes.NewReader(s).ReadAt(p, off)
	return err
}

// chains is the tasks of a component that are changed, rebased and restored at random.
type chains struct {
	o          *Opener
	generation checkpoint.Generation
	batch      checkpoint.BatchID
	tasks      []*state
	files      [][]checkpoint.FileRef
}

func (c *chains) close(t *rapid.T) {
	for _, s := range c.tasks {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.tasks = nil
}

// restore makes tasks out of the last files.
func (c *chains) restore(t *rapid.T, tasks int) {
	c.close(t)
	c.generation++
	files := slices.Concat(c.files...)
	c.files = make([][]checkpoint.FileRef, tasks)
	for i := range tasks {
		conf := config(c.generation, c.batch, files...)
		conf.TaskID, conf.TaskIndex = checkpoint.TaskID(i), i
		conf.GroupFrom, conf.GroupTo = i*groups/tasks, (i+1)*groups/tasks
		s, err := c.o.OpenState(context.Background(), conf)
		if err != nil {
			t.Fatal(err)
		}
		c.tasks = append(c.tasks, s.(*state))
		c.files[i] = s.(*state).chain
		s.(*state).baseFileBytes = 1 << 10
	}
}

func (c *chains) change(t *rapid.T) {
	c.batch++
	records := rapid.SliceOfNDistinct(rapid.Custom(drawChange), 0, 40, func(r txn.Record) string { return string(r.Key) }).Draw(t, "changes")
	for i, s := range c.tasks {
		cut := &txn.Cut{Batch: c.batch}
		for _, r := range records {
			if g, _ := groupOf(r.Key); g >= s.config.GroupFrom && g < s.config.GroupTo {
				cut.Records = append(cut.Records, r)
			}
		}
		files, err := s.Apply(context.Background(), cut)
		if err != nil {
			t.Fatal(err)
		}
		c.files[i] = slices.Clone(files)
	}
}

func drawChange(t *rapid.T) txn.Record {
	key := txn.AppendStateKey(nil, rapid.IntRange(0, groups-1).Draw(t, "group"), uint16(rapid.IntRange(1, 3).Draw(t, "state")),
		[]byte(rapid.SampledFrom([]string{"", "a", "b", "\x00", "\xff\xff"}).Draw(t, "key")))
	r := txn.Record{Key: key}
	if kind := rapid.IntRange(0, 3).Draw(t, "kind"); kind == 0 {
		r.Delete = true
		return r
	} else if r.Merge = kind > 1; r.Merge || rapid.Bool().Draw(t, "number") {
		r.Value = binary.BigEndian.AppendUint64([]byte{1}, uint64(rapid.Int64().Draw(t, "n")))
		return r
	}
	r.Value = binary.BigEndian.AppendUint64([]byte{1}, 1<<62)
	return r
}

// rebase has a task begin its chain anew. It waits, so that the next batch adopts it.
func (c *chains) rebase(t *rapid.T) {
	s := c.tasks[rapid.IntRange(0, len(c.tasks)-1).Draw(t, "rebased")]
	if s.base == nil {
		s.startBase()
		s.bases.Wait()
	}
}

// check compares what is read offline, at a parallelism of its own, with what the tasks
// have.
func (c *chains) check(t *rapid.T, objects checkpoint.RangeReader) {
	var want, got []string
	for _, s := range c.tasks {
		lower, upper := s.owned().bounds()
		err := s.Range(lower, upper, func(key, value []byte) error {
			want = append(want, fmt.Sprintf("%x=%x", key, value))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, tasks := slices.Concat(c.files...), rapid.IntRange(1, 4).Draw(t, "read by")
	for i := range tasks {
		from, to := i*groups/tasks, (i+1)*groups/tasks
		rows := NewChain(checkpoint.ClipChain(all, from, to), objects).Rows(t.Context())
		for ok := rows.SeekGE([]byte{0}); ok; ok = rows.Next() {
			got = append(got, fmt.Sprintf("%x=%x", rows.Key(), rows.Value()))
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("read offline are\n%q\nthe tasks have\n%q", got, want)
	}
	c.checkKeys(t, objects, all)
}

// checkKeys compares single keys, and what follows them.
func (c *chains) checkKeys(t *rapid.T, objects checkpoint.RangeReader, all []checkpoint.FileRef) {
	for range 5 {
		key := drawChange(t).Key
		g, _ := groupOf(key)
		s := c.tasks[slices.IndexFunc(c.tasks, func(s *state) bool { return g >= s.config.GroupFrom && g < s.config.GroupTo })]
		want, _, err := s.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewChain(checkpoint.ClipChain(all, g, g+1), objects).Get(t.Context(), key)
		if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Fatalf("key %x has %x offline, %v; the task has %x", key, got, err, want)
		}
		c.checkSeeks(t, objects, all, key)
	}
}

// checkSeeks goes forward by seeking.
func (c *chains) checkSeeks(t *rapid.T, objects checkpoint.RangeReader, all []checkpoint.FileRef, key []byte) {
	rows := NewChain(checkpoint.ClipChain(all, 0, groups), objects).Rows(t.Context())
	defer rows.Close()
	for ok := rows.SeekGE(key); ; ok = rows.SeekGE(key) {
		var want []byte
		for _, s := range c.tasks {
			_, upper := s.owned().bounds()
			stop := errors.New("stop")
			if bytes.Compare(key, upper) < 0 {
				err := s.Range(key, upper, func(k, _ []byte) error { want = bytes.Clone(k); return stop })
				if err != nil && !errors.Is(err, stop) {
					t.Fatal(err)
				}
			}
			if want != nil {
				break
			}
		}
		if rows.Err() != nil || ok != (want != nil) || ok && !bytes.Equal(rows.Key(), want) {
			t.Fatalf("after %x comes %x, %v, %v; want %x", key, rows.Key(), ok, rows.Err(), want)
		}
		if !ok {
			return
		}
		key = append(bytes.Clone(want), 0)
		if rapid.Bool().Draw(t, "skip") {
			key = []byte{key[0], key[1] + 1}
		}
	}
}

func TestChainIsReadAsRestoredStoresReadIt(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		store := memstore.New()
		c := &chains{o: New(Options{Dir: dir, Store: store, CacheBytes: 1 << 20})}
		defer func() {
			c.close(t)
			if err := c.o.Close(); err != nil {
				t.Fatal(err)
			}
		}()
		c.restore(t, rapid.IntRange(1, 3).Draw(t, "tasks"))
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				c.restore(t, rapid.IntRange(1, 4).Draw(t, "tasks"))
			case 1:
				c.rebase(t)
			default:
				c.change(t)
			}
		}
		c.check(t, checkpoint.Ranges(store))
	})
}

// A look-up reads the end of each table that may matter, and of its blocks one.
func TestLookUpReadsLittle(t *testing.T) {
	store := memstore.New()
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	cut := cutOf(1, 0, 20_000, "a value that takes some room in the table, so that it is large")
	apply(t, s, cut)
	files := apply(t, s, cutOf(2, 0, 1, "new"))
	objects := &countedReads{RangeReader: checkpoint.Ranges(store)}
	c := NewChain(files, objects)
	for key, want := range map[string]string{"00000000": "new", "00019999": string(cut.Records[0].Value), "x": ""} {
		objects.reads = nil
		got, err := c.Get(t.Context(), txn.AppendStateKey(nil, 3, 1, []byte(key)))
		if err != nil || string(got) != want {
			t.Errorf("key %s has %q, %v", key, got, err)
		}
		total := 0
		for _, n := range objects.reads {
			total += n
		}
		// The small table is read whole; of the large one the end, two levels of index
		// and a block, or two if the key is not in the first.
		if size := int(files[0].Size); len(objects.reads) > 6 || total > size/20 || want == "new" && len(objects.reads) > 1 {
			t.Errorf("key %s: read %v of a table of %d bytes", key, objects.reads, size)
		}
	}
	objects.reads = nil
	rows := c.Rows(t.Context())
	n := 0
	for ok := rows.SeekGE([]byte{0}); ok; ok = rows.Next() {
		n++
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || n != 20_000*groups {
		t.Errorf("%d rows, %v", n, err)
	}
	if most := int(files[0].Size)/aheadMax + 20; len(objects.reads) > most {
		t.Errorf("all rows took %d reads, %d are enough", len(objects.reads), most)
	}
}

func TestDamagedTableIsNotReadOffline(t *testing.T) {
	store := memstore.New()
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	files := apply(t, s, cutOf(1, 0, 3000, "some value that takes room"))
	data := object(t, store, files[0])
	key := txn.AppendStateKey(nil, 3, 1, []byte("00001000"))
	refused := 0
	for i := 0; i < len(data); i += len(data)/200 + 1 {
		bad := spoilt(bytes.Clone(data))
		bad[i] ^= 0x10
		rows := NewChain(files, bad).Rows(t.Context())
		n := 0
		for ok := rows.SeekGE([]byte{0}); ok; ok = rows.Next() {
			n++
		}
		err := errors.Join(rows.Err(), rows.Close())
		if err != nil {
			refused++
			if !errors.Is(err, checkpoint.ErrDamaged) || !bytes.Contains([]byte(err.Error()), []byte(files[0].Name)) {
				t.Errorf("byte %d: %v", i, err)
			}
		} else if n != 3000*groups {
			t.Errorf("byte %d is damaged and %d rows are read without an error", i, n)
		}
		if value, err := NewChain(files, bad).Get(t.Context(), key); err == nil && string(value) != "some value that takes room" {
			t.Errorf("byte %d is damaged and gives %q", i, value)
		}
	}
	if refused < 150 {
		t.Errorf("damage was seen %d times only", refused)
	}
	if _, err := NewChain(files, spoilt(data[:len(data)/2])).Get(t.Context(), key); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a table cut short: %v", err)
	}
}
