package checkpointtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

func retryAfterFailedPut(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	c.apply(t, every("a", "1")...)
	s := c.tasks[0]
	outage := errors.New("outage")
	for i, when := range []func(err error){
		func(err error) { c.store.before = func(string) error { return err } },
		func(err error) { c.store.after = func(string) error { return err } }, // stored, but the reply was lost
	} {
		cut := &txn.Cut{Batch: c.batch + 1, Records: every("a", fmt.Sprint("again", i))}
		already := names(t, c.store, "")
		when(outage)
		for range 3 {
			if _, err := s.Apply(t.Context(), cut); !errors.Is(err, outage) {
				t.Fatalf("apply while the store fails: %v", err)
			}
			c.checkView(t, c.batch)
		}
		c.store.before, c.store.after = nil, nil
		c.apply(t, cut.Records...)
		c.checkView(t, c.batch)
		if now := names(t, c.store, ""); len(now) != len(already)+1 {
			t.Errorf("the attempts left the objects %q, before were %q", now, already)
		}
	}
	c.restore(t, c.batch, 2)
}

// damage alters each object of a checkpoint in turn: restore must say which.
func damage(t *testing.T, c *cluster) {
	c.restore(t, 0, 2)
	for i := range 3 {
		c.apply(t, every("a", strings.Repeat("v", 50+i))...)
	}
	c.restore(t, c.batch, 1)
	c.apply(t, every("b", "w")...)
	c.close(t)
	objects := names(t, c.store, "data/")
	if len(objects) != 7 {
		t.Fatalf("expected 7 objects, there are %q", objects)
	}
	for _, name := range objects {
		whole := get(t, c.store, name)
		replace := func(what, data string, want error) {
			if err := c.store.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(want, checkpoint.ErrNotFound) {
				put(t, c.store, name, data)
			}
			c.generation++
			s, err := c.opener.OpenState(t.Context(), c.config(c.batch, 0, 1))
			if err == nil {
				err = s.Close()
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
		flipped := func(at int) string {
			b := []byte(whole)
			b[at] ^= 0x20
			return string(b)
		}
		replace("missing", "", checkpoint.ErrNotFound)
		replace("empty", "", checkpoint.ErrDamaged)
		replace("cut short", whole[:len(whole)-1], checkpoint.ErrDamaged)
		replace("too long", whole+"x", checkpoint.ErrDamaged)
		for _, at := range []int{0, len(whole) / 2, len(whole) - 1} {
			replace(fmt.Sprintf("flipped at %d", at), flipped(at), checkpoint.ErrDamaged)
		}
		if err := c.store.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		put(t, c.store, name, whole)
	}
	c.restore(t, c.batch, 3)
	c.close(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.opener.OpenState(ctx, c.config(c.batch, 0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a restore that is cancelled: %v", err)
	}
}

// bases goes on until the chains begin with a new base, twice.
func bases(t *testing.T, c *cluster) {
	const patience = time.Minute
	c.restore(t, 0, 2)
	c.apply(t, every("deleted before the base", "x")...)
	c.apply(t, every("deleted before the base", "-")...)
	for round := range 2 {
		old := slices.Concat(c.files...)
		c.apply(t, every("deleted after the base", "x")...)
		rebased := func(files []checkpoint.FileRef) bool {
			return len(files) > 0 && files[0].Base && !slices.Contains(old, files[0])
		}
		for begun := time.Now(); !rebased(c.files[0]) || !rebased(c.files[1]); {
			if time.Since(begun) > patience {
				t.Fatalf("no new base after %d batches; the chains are %+v", c.batch, c.files)
			}
			c.apply(t, every(fmt.Sprint("key", c.batch%7), fmt.Sprint("round ", round, " batch ", c.batch))...)
			for i := range c.tasks {
				c.tasks[i].Release(c.batch - 1)
			}
		}
		for _, f := range old {
			if slices.Contains(slices.Concat(c.files...), f) {
				t.Errorf("%s of batch %d is still in the chain", f.Name, f.Batch)
			}
		}
		c.checkView(t, c.batch)
		c.apply(t, every("deleted after the base", "-")...)
		for _, tasks := range []int{2, 3, 1, 2} {
			c.restore(t, c.batch, tasks)
		}
	}
}

// oldGenerationLivesOn has a task of an older generation write while the new one is
// restored and writes too: neither sees anything of the other.
func oldGenerationLivesOn(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	c.apply(t, every("a", "1")...)
	zombie, n := c.tasks[0], c.batch
	c.tasks = nil
	t.Cleanup(func() {
		if err := zombie.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	c.restore(t, n, 1)
	if _, err := zombie.Apply(t.Context(), &txn.Cut{Batch: n + 1, Records: every("a", "void")}); err != nil {
		t.Fatal(err)
	}
	c.apply(t, every("b", "2")...)
	if _, err := zombie.Apply(t.Context(), &txn.Cut{Batch: n + 2, Records: every("b", "void")}); err != nil {
		t.Fatal(err)
	}
	c.checkView(t, c.batch)
	c.restore(t, c.batch, 2)
}

func steps(t *testing.T, c *cluster) {
	var seen []string
	c.hook = func(step string) { seen = append(seen, step) }
	c.restore(t, 0, 1)
	c.apply(t, every("a", "1")...)
	c.apply(t)
	want := []string{"sst.before", "sst.after", "ingest.before", "ingest.after"}
	if !slices.Equal(seen, want) {
		t.Errorf("the hook saw %q, want %q", seen, want)
	}
}
