package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
	"github.com/isobar-io/isobar/txn"
)

// A window is shorter than the interval, and has a checkpoint all the same.
const tinyCheckpoint = "-workload checkpoint -state-mb 1 -entry-bytes 1000 -changes 2000 -interval 100ms -duration 30ms"

func TestCheckpoint(t *testing.T) {
	rows := bench(t, tinyCheckpoint+" -modes none,files")
	checkCheckpointRow(t, rows, "none")
	checkCheckpointRow(t, rows, "files")
	if none := rows["1 MB, 2000/s none"]; none["restore_ms"] != nil || none["ratio_to_none"] != 1.0 || none["added_p99_ms"] != 0.0 {
		t.Errorf("nothing is kept, and %v", none)
	}
	checkRow(t, rows, "1 MB, 2000/s files", "restore_ms", "restore_of_download", "get_ms")
}

func TestCheckpointOnS3(t *testing.T) {
	s3test.Program(t)
	rows := bench(t, tinyCheckpoint+" -modes s3")
	checkCheckpointRow(t, rows, "s3")
	checkRow(t, rows, "1 MB, 2000/s s3", "restore_ms", "restore_of_download", "get_ms")
	if _, ok := rows["1 MB, 2000/s s3"]["added_p99_ms"]; ok {
		t.Error("latency is added to none that was measured")
	}
}

// checkCheckpointRow checks a row of a workload whose batches have about 200 keys of
// 1000 bytes, and a base whenever there are more than 60 deltas or 1 MiB of them.
func checkCheckpointRow(t *testing.T, rows map[string]map[string]any, mode string) {
	t.Helper()
	name := "1 MB, 2000/s " + mode
	checkRow(t, rows, name, "tuples_per_s", "p99_ms", "checkpoints", "checkpoint_p50_ms", "checkpoint_p99_ms", "checkpoint_bytes", "objects")
	row := rows[name]
	if x, ok := row["checkpoint_of_changed"].(float64); !ok || x < 1 || x > 2 {
		t.Errorf("%s: %v bytes are put for each that was changed", name, row["checkpoint_of_changed"])
	}
	if x, ok := row["objects"].(float64); !ok || x <= 1 || x > holdTasks+1 {
		t.Errorf("%s: %v objects are put for each checkpoint", name, row["objects"])
	}
	if x, ok := row["bases_of_changed"].(float64); !ok || x < 0.05 || x > 2 {
		t.Errorf("%s: bases add %v bytes for each that was changed", name, row["bases_of_changed"])
	}
}

func TestS3IsSkippedAloudWithoutAServer(t *testing.T) {
	t.Setenv("ISOBAR_VERSITYGW", filepath.Join(t.TempDir(), "gone"))
	_, plans, err := parse([]string{"-workload", "checkpoint"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range plans[0].comparisons {
		var names []string
		for _, v := range c.variants {
			names = append(names, v.name)
		}
		if !slices.Equal(names, []string{"none", "files"}) || len(c.skipped) != 1 || c.skipped[0].name != "s3" {
			t.Fatalf("variants %q, skipped %v", names, c.skipped)
		}
		if why := c.skipped[0].why; !strings.Contains(why, "go install github.com/versity/versitygw/cmd/versitygw@"+s3test.Version) {
			t.Errorf("how to get it is not said: %s", why)
		}
	}
}

func TestTheServerIsGoneAfterwards(t *testing.T) {
	program := s3test.Program(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "mine")
	v, err := startVersity(t.Context(), program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.place(); err != nil || os.Getenv("AWS_ACCESS_KEY_ID") == "mine" {
		t.Errorf("the access key is %q, %v", os.Getenv("AWS_ACCESS_KEY_ID"), err)
	}
	v.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := v.answers(ctx); err == nil {
		t.Error("the server still answers")
	}
	if key := os.Getenv("AWS_ACCESS_KEY_ID"); key != "mine" {
		t.Errorf("the access key is %q afterwards", key)
	}
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	program := filepath.Join(t.TempDir(), "versitygw")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho out of order >&2\nexit 1\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := startVersity(t.Context(), program, t.TempDir()); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("error %v", err)
	}
}

// The original has all keys, in bases that are newer than the last of them; what else a
// base needs that is due would be in every window.
func TestRunsBeginWithNewBases(t *testing.T) {
	b := &checkpointBench{o: options{entryBytes: 100, changes: 10, interval: time.Second}, megabytes: 1, dir: t.TempDir()}
	o, err := b.fill(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tasks := 0
	for _, task := range o.manifest.Tasks {
		if task.Component != holdComponent {
			continue
		}
		tasks++
		if !task.Files[0].Base || checkpoint.BaseDue(task.Files) {
			t.Errorf("task %d has the files %+v", task.Index, task.Files)
		}
	}
	if tasks != holdTasks {
		t.Errorf("%d tasks hold keys", tasks)
	}
	for _, number := range []uint64{0, b.keys() - 1} {
		if err := b.look(t.Context(), o.store, number); err != nil {
			t.Error(err)
		}
	}
	if err := b.look(t.Context(), o.store, b.keys()+1); err == nil {
		t.Error("a key that was never changed is there")
	}
}

// A batch changes no more different keys than it is to, and says how many these are.
func TestBatchesChangeSoManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &load{keys: 1000, perBatch: 300, ages: newAges(shape{spouts: 1, counts: 1}, nil)}
		s := &changeSpout{load: l, ledger: newLedger(nil)}
		if err := s.Open(&txn.Context{TaskCount: 1}); err != nil {
			t.Fatal(err)
		}
		var keys keyMaker
		first := 0
		for batch, c := range []struct {
			rate  float64
			calls int
			want  int
		}{{0, 4, 4 * changesPerCall}, {200, 1, 200}, {200, 1, 0}} {
			l.rate, s.began, s.sent = c.rate, l.ages.now(), 0
			if batch == 1 {
				time.Sleep(time.Second)
			}
			rows, _ := collect(t, s, c.calls)
			if len(rows) != c.want {
				t.Fatalf("batch %d has %d tuples, want %d", batch, len(rows), c.want)
			}
			different := map[string]bool{}
			for i, row := range rows {
				if want := keys.make((first + i%300) % 1000).text; row[0].Str() != want {
					t.Fatalf("tuple %d of batch %d has key %s, want %s", i, batch, row[0].Str(), want)
				}
				different[row[0].Str()] = true
			}
			if _, err := s.FinishBatch(txn.BatchID(batch)); err != nil {
				t.Fatal(err)
			}
			if e := s.ledger.batches[txn.BatchID(batch)]; int(e.changed) != len(different) {
				t.Errorf("batch %d is said to change %d keys, and changes %d", batch, e.changed, len(different))
			}
			first += len(rows)
		}
	})
}

func TestLedgerAccountsForEachFileOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := func(name string, base bool, size int64) checkpoint.FileRef {
			return checkpoint.FileRef{Name: name, Base: base, Size: size}
		}
		manifest := func(n checkpoint.BatchID, files ...checkpoint.FileRef) *checkpoint.Manifest {
			return &checkpoint.Manifest{Batch: n, Tasks: []checkpoint.TaskSnapshot{{Component: holdComponent, Files: files}}}
		}
		old, base := file("old", true, 7<<20), file("base", true, 8<<20)
		d1, d2, d3 := file("d1", false, 1<<20), file("d2", false, 2<<20), file("d3", false, 3<<20)
		l := newLedger(manifest(0, old))
		from := time.Now()
		commit := func(n checkpoint.BatchID, took time.Duration, files ...checkpoint.FileRef) {
			l.close(n, 1000, uint64(n)*5000)
			time.Sleep(took)
			l.stored(manifest(n, files...), 100)
			l.headMoved(&checkpoint.Head{Regions: map[string]checkpoint.RegionHead{"r": {Retained: []checkpoint.Ref{{Batch: n}}}}}, 10, time.Now())
		}
		commit(1, 30*time.Millisecond, old, d1)
		commit(2, 10*time.Millisecond, old, d1, d2)
		commit(3, 20*time.Millisecond, base, d2, d3)
		to := time.Now()
		commit(4, time.Second, base, d2, d3, file("d4", false, 1))
		if l.committed != 20000 {
			t.Errorf("%d tuples are committed", l.committed)
		}
		a := l.between(from, to)
		x := a.sample(1000)
		// A base of 8 MiB is written anew after five deltas of 2 MiB.
		mb := float64(1 << 20)
		want := sample{3, 20, 30, 2*mb + 110, (6*mb + 330) / 3e6, 8 * mb / 5 / 1e6, 8 * mb, 2}
		for i := range want {
			if math.Abs(x[i]-want[i]) > 1e-9*want[i] {
				t.Errorf("the account is %v, want %v", x, want)
				break
			}
		}
		// A window has the checkpoint that is taken at its end, and not that of its beginning.
		second := from.Add(30 * time.Millisecond)
		if a := l.between(second, second.Add(10*time.Millisecond)); len(a.took) != 1 || a.bases != 0 {
			t.Errorf("the account of the second checkpoint is %+v", a)
		}
	})
}

// A run that begins with the original never changes it.
func TestRunsLeaveTheOriginalAlone(t *testing.T) {
	store, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(s checkpoint.Store, name string) {
		t.Helper()
		if err := s.Put(t.Context(), name, strings.NewReader(name), int64(len(name)), checkpoint.CRC([]byte(name))); err != nil {
			t.Fatal(err)
		}
	}
	put(store, "data/old")
	put(store, "manifest/old")
	o := &original{store: store, head: []byte("head"), objects: map[string]bool{"data/old": true, "manifest/old": true}}
	own := memstore.New()
	s, err := o.begin(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	if head, _, err := s.ReadHead(t.Context()); err != nil || string(head) != "head" {
		t.Errorf("head %q, %v", head, err)
	}
	put(s, "data/new")
	for _, name := range []string{"data/old", "manifest/old", "data/new"} {
		if _, _, err := s.Open(t.Context(), name); err != nil {
			t.Error(err)
		}
		if err := s.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
		_, _, err := store.Open(t.Context(), name)
		if was := o.objects[name]; was != (err == nil) {
			t.Errorf("%s in the original: %v", name, err)
		}
		if _, _, err := own.Open(t.Context(), name); err == nil {
			t.Errorf("%s is not deleted", name)
		}
	}
	if err := link(t.Context(), s, "data/old", filepath.Join(t.TempDir(), "link")); err != nil {
		t.Error(err)
	}
}
