package sim

import (
	"maps"
	"slices"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/txn"
)

// checker watches everything that becomes visible and compares it with the
// sequential model. It knows the truth: what is in the store and in the target.
type checker struct {
	w        *world
	versions map[checkpoint.Version]bool
	batch    map[string]batchID                 // the committed batch, by region
	txns     map[txn.TransactionID]bool         // transactions that committed checkpoints have named
	bySink   map[string][]txn.TransactionID     // the same, in the order in which they were committed
	staged   map[txn.TransactionID][]item       // what they have staged
	givenUp  map[string]map[checkpoint.Ref]bool // by region; generation and batch
	failures map[poison.Key]int                 // of user code on a tuple
	lines    map[string]line                    // that lead to each checkpoint, by its manifest
	high     map[string]map[generation]batchID  // the newest batch that a generation has committed or begun with, by region
	gone     map[txn.TransactionID]bool         // left behind, with the operator's consent
	kept     map[txn.TransactionID][]item       // what they have prepared
	made     map[made]bool
	back     map[string]bool // regions that have gone back
}

func newChecker(w *world) *checker {
	c := &checker{
		w:        w,
		versions: map[checkpoint.Version]bool{},
		batch:    map[string]batchID{},
		txns:     map[txn.TransactionID]bool{},
		bySink:   map[string][]txn.TransactionID{},
		staged:   map[txn.TransactionID][]item{},
		givenUp:  map[string]map[checkpoint.Ref]bool{},
		failures: map[poison.Key]int{},
		lines:    map[string]line{},
		high:     map[string]map[generation]batchID{},
		gone:     map[txn.TransactionID]bool{},
		kept:     map[txn.TransactionID][]item{},
		made:     map[made]bool{},
		back:     map[string]bool{},
	}
	for _, r := range w.shape.regions {
		c.givenUp[r.name] = map[checkpoint.Ref]bool{}
		c.high[r.name] = map[generation]batchID{}
	}
	return c
}

// headSwapped checks a new head against the one before: generations only go up, a
// fenced generation does not commit, batches are in order, versions never repeat.
func (c *checker) headSwapped(old, h *checkpoint.Head, v checkpoint.Version) {
	if c.versions[v] && c.w.is(HeadCompare) {
		c.w.violate("the head by %s has the bytes of an earlier one", h.Writer)
	}
	c.versions[v] = true
	for _, r := range c.w.shape.regions {
		var was checkpoint.RegionHead
		if old != nil {
			was = old.Regions[r.name]
			if h.Generation < old.Generation {
				c.w.violate("the topology's generation goes back from %d to %d", old.Generation, h.Generation)
			}
		}
		c.regionSwapped(r, was, h.Regions[r.name])
	}
	if c.w.fleet != nil {
		c.w.fleet.orders.headSwapped(h)
	}
}

func (c *checker) regionSwapped(r *region, was, is checkpoint.RegionHead) {
	if is.Generation < was.Generation {
		c.w.violate("%s: the generation goes back from %d to %d", r.name, was.Generation, is.Generation)
	}
	defer c.begins(r, was, is)
	before, now := was.Current(), is.Current()
	if c.wentBack(r, was, is) {
		return
	}
	c.settled(r, is.Settled)
	switch {
	case before == nil && now == nil:
		return
	case now == nil:
		c.w.violate("%s: checkpoint %s is gone", r.name, before)
		return
	case before != nil && *before == *now:
		return
	case now.Generation < was.Generation:
		c.w.violate("%s: generation %d commits batch %d after it was fenced by %d", r.name, now.Generation, now.Batch, was.Generation)
	case before != nil && now.Batch <= before.Batch:
		c.w.violate("%s: batch %d is committed after batch %d", r.name, now.Batch, before.Batch)
	}
	for _, ref := range c.w.keeps(r, is) {
		c.durable(r, ref)
	}
	if c.w.violation == nil {
		c.committed(r, *now)
	}
}

// settled checks that what the head says is published is.
func (c *checker) settled(r *region, n batchID) {
	for _, comp := range r.components {
		for _, id := range c.bySink[comp.name] {
			if _, ok := c.w.target.published[id]; !ok && !c.gone[id] && id.Batch <= n {
				c.w.violate("%s is settled up to batch %d, but transaction %s is not published", r.name, n, id)
			}
		}
	}
	if n > 0 {
		c.w.count("settled")
	}
}

// durable checks invariants I6 and I8: what a retained checkpoint names is there, and
// so is the input behind it.
func (c *checker) durable(r *region, ref checkpoint.Ref) {
	o, ok := c.w.store.objects[ref.Manifest]
	if !ok {
		c.w.violate("checkpoint %s is retained, but its manifest is not in the store", ref)
		return
	}
	man := o.value.(*checkpoint.Manifest)
	for _, comp := range r.components {
		if c.back[r.name] {
			break // the oldest batch says nothing of what another line has read
		}
		for _, p := range comp.partitions {
			if n := position(man, r, p); n < p.trimmed {
				c.w.violate("checkpoint %s is retained and has read %d items of %s, but %d are trimmed", ref, n, p.name, p.trimmed)
			}
		}
	}
	for _, t := range man.Tasks {
		for _, f := range t.Files {
			if _, ok := c.w.store.objects[f.Name]; !ok {
				c.w.violate("checkpoint %s is retained, but object %s is not in the store", ref, f.Name)
			}
		}
	}
}

// committed checks that a checkpoint is a consistent cut: its state and everything
// prepared are what the model makes of the input up to its positions.
func (c *checker) committed(r *region, ref checkpoint.Ref) {
	c.batch[r.name] = ref.Batch
	c.high[r.name][ref.Generation] = ref.Batch
	if c.givenUp[r.name][checkpoint.Ref{Generation: ref.Generation, Batch: ref.Batch}] {
		c.w.violate("%s: batch %d is committed after it was given up", r.name, ref.Batch)
	}
	man := c.w.store.objects[ref.Manifest].value.(*checkpoint.Manifest)
	if man.Batch != ref.Batch || man.Generation != ref.Generation || man.Ended != ref.Ended {
		c.w.violate("%s: checkpoint %s has a manifest of %d.%d", r.name, ref, man.Generation, man.Batch)
	}
	expected := r.expect(func(p *partition) int { return position(man, r, p) })
	for _, comp := range r.components {
		if comp.kind.sink() {
			c.collect(man, comp)
		}
		if !comp.reordered || man.Ended {
			c.compare(man, comp, expected)
		}
	}
	c.lines[ref.Manifest] = c.lineOf(r)
}

// position returns how far a checkpoint says that a partition is read.
func position(man *checkpoint.Manifest, r *region, p *partition) int {
	n := 0
	for _, comp := range r.components {
		if comp.kind != source {
			continue
		}
		for _, t := range snapshots(man, comp.name) {
			n = max(n, positionOf(t, p))
		}
	}
	return n
}

// collect notes the transactions that a checkpoint names. All must be prepared.
func (c *checker) collect(man *checkpoint.Manifest, comp *component) {
	for _, t := range snapshots(man, comp.name) {
		all, err := transactions(comp.kind, t.Handles)
		if err != nil {
			c.w.violate("batch %d: %s[%d]: %v", man.Batch, t.Component, t.Index, err)
		}
		for _, tx := range all {
			if c.txns[tx.id] {
				if !slices.Contains(c.bySink[comp.name], tx.id) {
					c.w.violate("batch %d lists transaction %s, which was undone", man.Batch, tx.id)
				}
				continue
			}
			c.txns[tx.id] = true
			c.bySink[comp.name] = append(c.bySink[comp.name], tx.id)
			c.staged[tx.id] = tx.items
			c.kept[tx.id] = c.items(tx.id)
			if c.kept[tx.id] == nil {
				c.w.violate("batch %d commits transaction %s, which is not prepared", man.Batch, tx.id)
			}
		}
	}
}

// items returns the output of a committed transaction.
func (c *checker) items(id txn.TransactionID) []item {
	if items := c.staged[id]; items != nil {
		return items
	}
	if items := c.kept[id]; items != nil {
		return items
	}
	if items, ok := c.w.target.published[id]; ok {
		return items
	}
	return c.w.target.prepared[id]
}

// compare checks the state of one component in a checkpoint.
func (c *checker) compare(man *checkpoint.Manifest, comp *component, x expectation) {
	switch comp.kind {
	case tally:
		var sum item
		for _, t := range snapshots(man, comp.name) {
			for _, it := range newestItems(t) {
				sum.key += it.key
				sum.n += it.n
			}
		}
		c.compareSum(man, comp, sum, x.sums[comp])
	case counter, digest, latest:
		got, want := c.keyed(man, comp), x.counts[comp]
		for k := range got {
			if got[k] != want[k] && (c.w.shape.exactlyOnce || got[k] < want[k]) {
				c.w.violate("batch %d: %s holds %v, the model says %v", man.Batch, comp.name, got, want)
			}
		}
	case twoPhase, staged:
		got := map[item]int{}
		for _, id := range c.bySink[comp.name] {
			for _, it := range c.items(id) {
				got[it]++
			}
		}
		c.compareEffects("batch", int(man.Batch), comp, got, x.effects[comp])
	case ordered:
		var sum item
		for i := range comp.tasks {
			s := c.w.target.sums[writer{comp.name, i}]
			if s.batch != man.Batch {
				s.now = s.prev // it is one batch ahead already
			}
			sum.key += s.now.key
			sum.n += s.now.n
		}
		c.compareSum(man, comp, sum, x.sums[comp])
	case source, relay, buffer:
	}
}

func (c *checker) compareSum(man *checkpoint.Manifest, comp *component, sum, want item) {
	if sum != want && (c.w.shape.exactlyOnce || sum.key < want.key || sum.n < want.n) {
		c.w.violate("batch %d: %s holds %v, the model says %v", man.Batch, comp.name, sum, want)
	}
}

func (c *checker) compareEffects(what string, n int, comp *component, got, want map[item]int) {
	if maps.Equal(got, want) {
		return
	}
	for _, it := range allItems(got, want) {
		if g, w := got[it], want[it]; g < w || g > w && c.w.shape.exactlyOnce {
			c.w.violate("%s %d: %s has tuple %v %d times, the model says %d", what, n, comp.name, it, g, w)
			return
		}
	}
}

// keyed returns the keyed state of a component in a checkpoint.
func (c *checker) keyed(man *checkpoint.Manifest, comp *component) [keys]int32 {
	var all [keys]int32
	for i := range comp.tasks {
		part := c.keyedTask(man, comp, i)
		for k := range all {
			all[k] += part[k]
		}
	}
	return all
}

func (c *checker) keyedTask(man *checkpoint.Manifest, comp *component, index int) [keys]int32 {
	var values [keys]int32
	for _, f := range snapshots(man, comp.name)[index].Files {
		if o, ok := c.w.store.objects[f.Name]; ok {
			values = o.value.(*stateFile).over(values)
		}
	}
	return values
}

// acknowledges checks invariant I1 where a master says that a batch is committed.
func (c *checker) acknowledges(r *region, a checkpoint.AckCommit) {
	if n := c.high[r.name][a.Generation]; a.Batch > n {
		c.w.violate("%s: batch %d is acknowledged, but generation %d has only batch %d committed", r.name, a.Batch, a.Generation, n)
	}
}

// publishes checks invariant I1 where a transaction becomes visible.
func (c *checker) publishes(id txn.TransactionID) {
	if !c.txns[id] {
		c.w.violate("transaction %s is published, but no committed checkpoint names it", id)
	}
}

// shows checks invariant I1 where a latest-value sink shows a batch.
func (c *checker) shows(by *task, n batchID) {
	if now := c.high[by.comp.region.name][by.gen]; n > now {
		c.w.violate("%s shows batch %d, but only batch %d is committed", by, n, now)
	}
}

// adds checks that an ordered sink is at most one batch ahead of the head.
func (c *checker) adds(by *task, n batchID) {
	if now := c.high[by.comp.region.name][by.gen]; n > now+1 {
		c.w.violate("%s writes batch %d, but only batch %d is committed", by, n, now)
	}
}

// finished checks what must be visible when the region has ended in order.
func (c *checker) finished(l *lead, outcome checkpoint.Outcome) {
	if !c.w.leads(l.m) {
		return // others may have gone on since it was fenced
	}
	c.visible(l.region, outcome == checkpoint.Completed)
}

// visible checks that everything committed is published, and if completed is set
// that everything there was to read is committed.
func (c *checker) visible(r *region, completed bool) {
	var current *checkpoint.Ref
	if h := c.w.store.head; h != nil {
		current = h.Regions[r.name].Current()
	}
	if current == nil {
		if completed {
			c.w.violate("%s has completed without a checkpoint", r.name)
		}
		return
	}
	man := c.w.store.objects[current.Manifest].value.(*checkpoint.Manifest)
	if completed && !man.Ended {
		c.w.violate("%s has completed, but its checkpoint %s does not say so", r.name, current)
	}
	x := r.expect(func(p *partition) int {
		n := position(man, r, p)
		if completed && n != p.open {
			c.w.violate("%s has completed, but has read only %d of %d items of %s", r.name, n, p.open, p.name)
		}
		return n
	})
	for _, comp := range r.components {
		if comp.kind == latest {
			c.visibleValues(man, comp)
		}
		if comp.kind.sink() {
			c.visibleTransactions(comp)
			if completed || !comp.reordered {
				c.compareEffects("published, batch", int(man.Batch), comp, c.published(comp), x.effects[comp])
			}
		}
	}
}

// published returns what is visible of a sink.
func (c *checker) published(comp *component) map[item]int {
	got := map[item]int{}
	for _, id := range c.bySink[comp.name] {
		items := c.w.target.published[id]
		if items == nil && c.gone[id] {
			items = c.items(id)
		}
		for _, it := range items {
			got[it]++
		}
	}
	return got
}

func (c *checker) visibleTransactions(comp *component) {
	for _, id := range c.bySink[comp.name] {
		if _, ok := c.w.target.published[id]; !ok && !c.gone[id] {
			c.w.violate("%s has ended, but transaction %s is committed and not published", comp.region.name, id)
		}
	}
}

func (c *checker) visibleValues(man *checkpoint.Manifest, comp *component) {
	for i := range comp.tasks {
		if shown, want := c.w.target.shown[writer{comp.name, i}].values, c.keyedTask(man, comp, i); shown != want {
			c.w.violate("%s has ended, but task %d of %s shows %v and not %v", comp.region.name, i, comp.name, shown, want)
		}
	}
}

// diverts checks that a tuple goes to the failed stream only when its component's
// code has failed on it often enough, and would for ever.
func (c *checker) diverts(comp *component, k poison.Key) {
	c.w.count("diverted")
	n, d := c.failures[k], comp.poison[k]
	if n < c.w.timing.PoisonAttempts || d == nil || !d.always {
		c.w.violate("%+v goes to the failed stream after %d failures", k, n)
	}
}

// failsOn counts a failure of user code on a tuple, of which the master of the task was
// told so many when the task was made.
func (c *checker) failsOn(k poison.Key, told int) {
	c.failures[k]++
	if told >= c.w.timing.PoisonAttempts {
		c.w.violate("%+v is executed, though user code has failed on it %d times", k, told)
	}
}

// givesUp checks that an outage of the store alone makes no checkpoint be given up.
func (c *checker) givesUp(l *lead, a checkpoint.GiveUp) {
	c.givenUp[l.region.name][checkpoint.Ref{Generation: l.gen, Batch: a.Batch}] = true
	if c.w.faults.OutagesOnly {
		c.w.violate("%s: batch %d is given up, though there is nothing but outages", l.region.name, a.Batch)
	}
}

// fails checks that it makes no task fail either.
func (c *checker) fails(l *lead, f checkpoint.TaskFailed) {
	if c.w.faults.OutagesOnly && l.gen == f.Generation {
		c.w.violate("%s: task %d fails, though there is nothing but outages: %v", l.region.name, f.Task, f.Err)
	}
}
