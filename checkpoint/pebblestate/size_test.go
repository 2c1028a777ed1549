package pebblestate

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

var stateGB = flag.Float64("state.gb", 0, "size of the state of TestStateAtSize in GB, with 256 MB of cache; 0 = small, with 4 MB")

const sizedValueBytes = 1000

// sized is the tasks of one component with much state, and what it must hold: of each
// key the batch that wrote it last, 0 for none; and how often each sum was raised.
type sized struct {
	*testing.T
	opener     *Opener
	random     *rand.Rand
	generation checkpoint.Generation
	tasks      []*state
	files      [][]checkpoint.FileRef
	batch      checkpoint.BatchID
	written    []uint32
	sums       int64

	cacheBytes         int64
	liveMax, cachedMax int64
	chainMax           int
	chainBytesMax      int64
	storedBytes        int64
}

func sizedKey(k int) []byte {
	return txn.AppendStateKey(nil, k%groups, 1, binary.BigEndian.AppendUint64(nil, uint64(k)))
}

// sizedValue fills value with what batch n writes of key k: random bytes, that no codec
// makes smaller.
func sizedValue(value []byte, k int, n uint32) {
	x := uint64(k)<<32 | uint64(n)
	for i := 0; i+8 <= len(value); i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(value[i:], x^x>>29)
	}
}

// restore opens the state with this many tasks.
func (z *sized) restore(tasks int) (took time.Duration) {
	z.Helper()
	for _, s := range z.tasks {
		if err := s.Close(); err != nil {
			z.Fatal(err)
		}
	}
	var files []checkpoint.FileRef
	for _, f := range z.files {
		files = append(files, f...)
	}
	z.generation++
	z.tasks, z.files = nil, make([][]checkpoint.FileRef, tasks)
	begun := time.Now()
	for i := range tasks {
		c := config(z.generation, z.batch, files...)
		c.TaskIndex, c.TaskID, c.GroupFrom, c.GroupTo = i, checkpoint.TaskID(i), i*groups/tasks, (i+1)*groups/tasks
		z.tasks = append(z.tasks, openState(z, z.opener, c))
	}
	return time.Since(begun)
}

// apply makes the next batch: the given keys are written, a few of them deleted, and a
// sum in each group is raised.
func (z *sized) apply(keys []int) {
	z.Helper()
	z.batch++
	cuts := make([]*txn.Cut, len(z.tasks))
	for i := range cuts {
		cuts[i] = &txn.Cut{Batch: z.batch}
	}
	add := func(r txn.Record) {
		task := int(r.Key[1]) * len(cuts) / groups // the number of tasks divides that of groups
		cuts[task].Records = append(cuts[task].Records, r)
	}
	arena, seen := make([]byte, len(keys)*sizedValueBytes), map[int]bool{}
	for _, k := range keys {
		if seen[k] {
			continue
		}
		seen[k] = true
		r := txn.Record{Key: sizedKey(k)}
		if z.written[k] > 0 && z.random.IntN(20) == 0 {
			r.Delete = true
			z.written[k] = 0
		} else {
			r.Value, arena = arena[:sizedValueBytes:sizedValueBytes], arena[sizedValueBytes:]
			z.written[k] = uint32(z.batch)
			sizedValue(r.Value, k, uint32(z.batch))
		}
		add(r)
	}
	z.sums++
	for _, r := range plus(z.batch).Records {
		add(r)
	}
	for i, s := range z.tasks {
		before := z.files[i]
		z.files[i] = apply(z, s, cuts[i])
		s.Release(z.batch)
		z.count(s, before, z.files[i])
	}
}

// count adds up what was stored, deletes what is in no chain any more, and demands that a base is begun whenever one is due.
func (z *sized) count(s *state, before, now []checkpoint.FileRef) {
	z.Helper()
	for _, f := range now {
		if !slices.Contains(before, f) {
			z.storedBytes += f.Size
		}
	}
	for _, f := range before {
		if z.generation == 1 && !slices.Contains(now, f) { // later ones share files
			if err := z.opener.store.Delete(z.Context(), f.Name); err != nil {
				z.Fatal(err)
			}
		}
	}
	z.chainMax, z.chainBytesMax = max(z.chainMax, len(now)), max(z.chainBytesMax, sizeOf(now))
	if s.base == nil && checkpoint.BaseDue(now) {
		z.Fatalf("batch %d: no base is being written for %d files of %d bytes", z.batch, len(now), sizeOf(now))
	}
}

// measure takes a sample of the memory that is in use.
func (z *sized) measure() {
	runtime.GC()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	cached, _ := z.opener.CacheBytes()
	z.liveMax, z.cachedMax = max(z.liveMax, int64(heap[0].Value.Uint64())), max(z.cachedMax, cached)
}

// check compares all that the tasks hold with what it must be.
func (z *sized) check() {
	z.Helper()
	want, value := 0, make([]byte, sizedValueBytes)
	for _, n := range z.written {
		if n > 0 {
			want++
		}
	}
	got, sums := 0, 0
	for _, s := range z.tasks {
		err := s.Range(nil, nil, func(key, stored []byte) error {
			if len(stored) == 9 {
				sums++
				if string(stored) != string(sumOf(z.sums)) {
					return fmt.Errorf("the sum of %x is %x, want %d", key, stored, z.sums)
				}
				return nil
			}
			got++
			k := int(binary.BigEndian.Uint64(key[4:]))
			sizedValue(value, k, z.written[k])
			if string(stored) != string(value) {
				return fmt.Errorf("key %d has not the value that batch %d wrote", k, z.written[k])
			}
			return nil
		})
		if err != nil {
			z.Fatal(err)
		}
	}
	if got != want || sums != groups {
		z.Fatalf("there are %d keys and %d sums, want %d and %d", got, sums, want, groups)
	}
}

// State far larger than the memory it may take: written by random updates while bases
// are written in the background, and restored by half and by twice as many tasks.
func TestStateAtSize(t *testing.T) {
	bytes, cacheBytes, cutBytes := int64(200<<20), int64(4<<20), 4<<20
	switch {
	case *stateGB > 0:
		bytes, cacheBytes, cutBytes = int64(*stateGB*(1<<30)), 256<<20, 32<<20
	case testing.Short() || raced():
		bytes, cutBytes = 20<<20, 1<<20
	}
	keys := int(bytes / sizedValueBytes)
	z := &sized{T: t, opener: New(Options{Dir: t.TempDir(), Store: newFilestore(t), CacheBytes: cacheBytes}),
		random: rand.New(rand.NewPCG(1, 2)), written: make([]uint32, keys), cacheBytes: cacheBytes, files: make([][]checkpoint.FileRef, 2)}
	t.Cleanup(func() {
		if err := z.opener.Close(); err != nil {
			t.Error(err)
		}
	})
	z.restore(2)
	perCut := cutBytes / sizedValueBytes
	batches := 5 * keys / perCut / 4
	begun := time.Now()
	for i := range batches {
		chosen := make([]int, perCut)
		for j := range chosen {
			if chosen[j] = i*perCut + j; chosen[j] >= keys { // from here on all are there
				chosen[j] = z.random.IntN(keys)
			}
		}
		z.apply(chosen)
		if i%max(1, batches/20) == 0 {
			z.measure()
			if *stateGB > 0 {
				z.report(fmt.Sprintf("batch %d of %d after %v", i+1, batches, time.Since(begun).Round(time.Second)))
			}
		}
	}
	z.report(fmt.Sprintf("%d batches in %v", batches, time.Since(begun).Round(time.Millisecond)))
	fixed := int64(4*keys + 3*cutBytes)
	if limit := fixed + 48<<20; z.liveMax > limit {
		t.Errorf("%d bytes of heap are alive, of which %d are the test's", z.liveMax, fixed)
	}
	if z.cachedMax > 2*cacheBytes {
		t.Errorf("%d bytes of blocks are cached, %d are allowed", z.cachedMax, cacheBytes)
	}
	if z.chainBytesMax > 3*bytes {
		t.Errorf("a chain had %d bytes for a state of %d", z.chainBytesMax, bytes/2)
	}
	for _, tasks := range []int{1, 4} {
		took := z.restore(tasks)
		t.Logf("restored by %d tasks in %v", tasks, took.Round(time.Millisecond))
		z.check()
		z.apply([]int{0, 1, 2})
	}
	z.check()
}

// raced reports whether the race detector is on, with which all takes ten times as long.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// report logs what a run came to.
func (z *sized) report(what string) {
	m := z.tasks[0].Stats()
	status, _ := os.ReadFile("/proc/self/status") // empty where there is none
	io, _ := os.ReadFile("/proc/self/io")
	z.Logf("%s: stored %d MB, chains of up to %d files and %d MB, live heap up to %d MB, cache up to %d MB, %d local tables, %d deep, %d MB on disk and %d of debt; %s, %s",
		what, z.storedBytes>>20, z.chainMax, z.chainBytesMax>>20, z.liveMax>>20, z.cachedMax>>20,
		m.Tables, m.ReadDepth, m.DiskBytes>>20, m.DebtBytes>>20, lineOf(status, "VmHWM:"), lineOf(io, "write_bytes:"))
}

// lineOf returns the line that begins with name.
func lineOf(text []byte, name string) string {
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return name + " unknown"
}
