package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/master"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
)

// Describe implements prometheus.Collector.
func (h *Handler) Describe(out chan<- *prometheus.Desc) {
	for _, m := range table {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector: it reads the instruments of the run.
func (h *Handler) Collect(out chan<- prometheus.Metric) {
	run := h.run.Load()
	if run == nil {
		return
	}
	s := scrape{out: out, run: run, plan: run.Plan()}
	s.put(buildInfo, 1, run.Engine())
	regions := run.Regions()
	regionOf := map[string]string{}
	for _, r := range regions {
		for _, id := range r.Tasks {
			regionOf[s.plan.Component(id).ID] = r.Name
		}
		s.region(r)
	}
	for i := range s.plan.Components {
		c := &s.plan.Components[i]
		s.component(c, regionOf[c.ID])
	}
	s.queues()
}

// scrape is one reading of a run.
type scrape struct {
	out  chan<- prometheus.Metric
	run  *master.Inspector
	plan *plan.Plan
}

func (s *scrape) put(m *metric, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if m.kind == counter {
		kind = prometheus.CounterValue
	}
	s.out <- prometheus.MustNewConstMetric(m.desc, kind, value, append([]string{s.plan.Topology}, labels...)...)
}

func (s *scrape) putDistribution(m *metric, d measure.Distribution, labels ...string) {
	buckets := map[float64]uint64{}
	count := uint64(0)
	for i, n := range d.Counts {
		count += n
		if i < len(d.Bounds) {
			buckets[d.Bounds[i].Seconds()] = count
		}
	}
	s.out <- prometheus.MustNewConstHistogram(m.desc, count, d.Sum.Seconds(), buckets,
		append([]string{s.plan.Topology}, labels...)...)
}

func (s *scrape) region(r master.RegionStatus) {
	s.put(generation, float64(r.Generation), r.Name)
	s.put(running, truth(r.Running), r.Name)
	s.put(degraded, truth(len(r.Degraded) > 0), r.Name)
	s.put(pending, float64(r.Pending), r.Name)
	s.put(committed, float64(r.Committed), r.Name)
	s.put(givenUp, float64(r.GivenUp), r.Name)
	s.put(restarts, float64(r.Restarts), r.Name)
	s.put(manifests, float64(r.ManifestBytes), r.Name)
	if r.Last != nil {
		s.put(lastTime, float64(r.Last.UnixMilli)/1000, r.Name)
		s.put(lastBatch, float64(r.Last.Batch), r.Name)
	}
	s.putDistribution(checkpointTime, r.Total, r.Name)
	s.putDistribution(phases, r.Store, r.Name, "", "store")
	s.putDistribution(phases, r.Commit, r.Name, "", "commit")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// component adds up what the tasks of a component have done.
func (s *scrape) component(c *plan.Component, region string) {
	first, n := s.plan.TaskIDs(c.ID)
	tasks := make([]*task.Stats, n)
	for i := range tasks {
		tasks[i] = s.run.Stats(first + i)
	}
	s.tuples(c, tasks)
	s.activity(c, tasks)
	s.phases(c, region, tasks)
	if c.Role == plan.Keyed {
		s.keyed(c, tasks)
	}
}

func (s *scrape) keyed(c *plan.Component, tasks []*task.Stats) {
	var bytes uint64
	var size, held int64
	var store checkpoint.StateStats
	for _, t := range tasks {
		bytes += t.StoredBytes.Load()
		size += t.StateBytes.Load()
		held += t.HeldBytes.Load()
		now := t.Store()
		store.MemoryBytes += now.MemoryBytes
		store.DiskBytes += now.DiskBytes
		store.ReadDepth = max(store.ReadDepth, now.ReadDepth)
	}
	s.put(stored, float64(bytes), c.ID)
	s.put(state, float64(size), c.ID)
	s.put(stateMemory, float64(held), c.ID, "entries")
	s.put(stateMemory, float64(store.MemoryBytes), c.ID, "store")
	s.put(stateDisk, float64(store.DiskBytes), c.ID)
	s.put(stateDepth, float64(store.ReadDepth), c.ID)
}

func (s *scrape) tuples(c *plan.Component, tasks []*task.Stats) {
	for i, stream := range c.Streams {
		n := uint64(0)
		for _, t := range tasks {
			n += t.Emitted[i].Load()
		}
		s.put(emitted, float64(n), c.ID, stream.ID)
	}
	for i, in := range c.Inputs {
		n := uint64(0)
		for _, t := range tasks {
			n += t.Executed[i].Load()
		}
		s.put(executed, float64(n), c.ID, in.Component, in.Stream)
	}
	for i, source := range task.Sources(c) {
		nanos := uint64(0)
		for _, t := range tasks {
			nanos += t.Late[i].Load()
		}
		s.put(late, time.Duration(nanos).Seconds(), c.ID, source)
	}
}

func (s *scrape) activity(c *plan.Component, tasks []*task.Stats) {
	receivers := task.Receivers(s.plan, c)
	waited := make([]time.Duration, len(receivers))
	for i, t := range tasks {
		totals := t.Activity.Totals()
		blocked := time.Duration(0)
		for r, d := range totals[measure.Blocked:] {
			waited[r] += d
			blocked += d
		}
		name := strconv.Itoa(i)
		s.put(taskTime, totals[measure.Busy].Seconds(), c.ID, name, "busy")
		s.put(taskTime, totals[measure.Idle].Seconds(), c.ID, name, "idle")
		s.put(taskTime, blocked.Seconds(), c.ID, name, "blocked")
	}
	for r, d := range waited {
		s.put(backpressure, d.Seconds(), c.ID, receivers[r])
	}
}

func (s *scrape) phases(c *plan.Component, region string, tasks []*task.Stats) {
	put := func(m *metric, of func(*task.Stats) *measure.Histogram, labels ...string) {
		var d measure.Distribution
		for _, t := range tasks {
			of(t).AddTo(&d)
		}
		s.putDistribution(m, d, labels...)
	}
	if c.Role == plan.Spout {
		put(phases, func(t *task.Stats) *measure.Histogram { return t.Wait }, region, c.ID, "wait")
	} else {
		put(executeTime, func(t *task.Stats) *measure.Histogram { return t.Execute }, c.ID)
		put(phases, func(t *task.Stats) *measure.Histogram { return t.Align }, region, c.ID, "align")
	}
	put(phases, func(t *task.Stats) *measure.Histogram { return t.Copy }, region, c.ID, "copy")
	put(phases, func(t *task.Stats) *measure.Histogram { return t.Write }, region, c.ID, "write")
}

func (s *scrape) queues() {
	type edge struct{ component, source string }
	fullest := map[edge]float64{}
	s.run.Queues(func(from, to int, fill float64) {
		e := edge{s.plan.Component(to).ID, s.plan.Component(from).ID}
		fullest[e] = max(fullest[e], fill)
	})
	for e, fill := range fullest {
		s.put(queueFill, fill, e.component, e.source)
	}
}
