package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metric describes one metric. Every one has the label "topology" too.
type metric struct {
	name   string
	kind   string // as Prometheus calls it
	labels []string
	help   string

	desc *prometheus.Desc
}

func define(name, kind, labels, help string) *metric {
	m := &metric{name: "isobar_" + name, kind: kind, labels: strings.Fields(labels), help: help}
	m.desc = prometheus.NewDesc(m.name, help, append([]string{"topology"}, m.labels...), nil)
	table = append(table, m)
	return m
}

// table is in the order of the reference page.
var table []*metric

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// The metrics. Counters go on through restarts of a region and begin anew with the
// process; what is done again after a rollback counts again.
var (
	buildInfo = define("build_info", gauge, "version", "1, with the version of Isobar.")

	emitted = define("tuples_emitted_total", counter, "component stream",
		"Tuples that a component has emitted on a stream, once each, whatever the number of receivers.")
	executed = define("tuples_executed_total", counter, "component source stream",
		"Tuples of a stream of source that a bolt has executed.")
	executeTime = define("execute_duration_seconds", histogram, "component",
		"Time to execute a tuple, as the mean of its frame. What its emits waited for receivers is included.")
	taskTime = define("task_seconds_total", counter, "component task state",
		"Time that a task was busy, idle, or blocked by a receiver whose queue was full. Its rate is the share of each state.")
	backpressure = define("backpressure_seconds_total", counter, "component receiver",
		"Time that the tasks of a component waited because a queue of receiver was full.")
	queueFill = define("queue_fill_ratio", gauge, "component source",
		"How full the fullest queue of the component's tasks for tuples of source is, from 0 to 1.")
	late = define("alignment_late_seconds_total", counter, "component source",
		"How much later than the first barrier of a batch those from source came in. The source with the highest rate is what alignment waits for.")

	phases = define("checkpoint_phase_duration_seconds", histogram, "region component phase",
		"Parts of a checkpoint. Of each task: wait, until a spout takes the barrier; align, from the first barrier to the last; copy, while the task stands still to finish the batch; write, from then until its state is durable. Of the region, with an empty component: store, the manifest; commit, moving the head.")
	checkpointTime = define("checkpoint_duration_seconds", histogram, "region",
		"Time from sending the barrier of a batch to its commit.")
	stored = define("checkpoint_stored_bytes_total", counter, "component",
		"Bytes of state files written for checkpoints.")
	manifests = define("checkpoint_manifest_bytes_total", counter, "region",
		"Bytes of manifests written.")
	state = define("state_bytes", gauge, "component",
		"Bytes of the state files that hold the newest batch written.")

	stateMemory = define("state_memory_bytes", gauge, "component part",
		"Memory that keyed state takes. entries: keys and values in the tasks' tables, which topology.state.cache.mb bounds; store: what their local stores have not written to disk yet.")
	stateDisk = define("state_disk_bytes", gauge, "component",
		"Disk that the local stores of keyed state take.")
	stateDepth = define("state_read_depth", gauge, "component",
		"Files that a read of a key which is not in memory may have to look into, at most, in any task.")

	pending = define("pending_batches", gauge, "region",
		"Batches that are closed and neither committed nor given up.")
	committed = define("committed_batches_total", counter, "region", "Batches committed.")
	givenUp   = define("given_up_batches_total", counter, "region",
		"Batches whose checkpoint was given up, to be covered by a later one.")
	lastTime = define("last_checkpoint_timestamp_seconds", gauge, "region",
		"When the newest complete checkpoint was taken, in seconds since 1970. Absent before the first.")
	lastBatch = define("last_checkpoint_batch", gauge, "region",
		"The batch of the newest complete checkpoint. Absent before the first.")
	restarts   = define("restarts_total", counter, "region", "Times that the region was rolled back.")
	generation = define("generation", gauge, "region", "The generation of the region.")
	running    = define("region_running", gauge, "region", "1 while the tasks of the region run, else 0.")
	degraded   = define("region_degraded", gauge, "region",
		"1 while something keeps the region from working as it should, else 0; /healthz says what.")
)

// Markdown returns the reference page of all metrics.
func Markdown() string {
	var sb strings.Builder
	sb.WriteString(`# Metrics and health

<!-- Generated from engine/metrics/table.go by go test ./engine/metrics -rewrite; do not edit. -->

A topology program that is started with ` + "`--listen ADDR`" + ` serves, while it runs,

- ` + "`/metrics`" + `: what is below, for Prometheus, with the ` + "`go_…` and `process_…`" + ` metrics of its client;
- ` + "`/healthz`" + `: JSON with the state of every region, the age of its newest checkpoint in seconds, and what keeps
  it from working as it should, such as a store that cannot be reached. The status is 200 unless a region has
  failed or nothing has begun yet; then it is 503. What is degraded gets well by itself: restarting it does not help;
- ` + "`/debug/pprof/`" + `: profiles.

` + "`ADDR`" + ` is ` + "`:9090`" + `, which listens on this machine only, or ` + "`HOST:9090`" + `; anyone who can reach the address can read
everything above, so name another host only on a network that you trust.

Times are in seconds, sizes in bytes. Every metric has the label ` + "`topology`" + `. Counters go on through restarts of a
region and begin anew with the process; what is done again after a rollback counts again.
` + "`deploy/grafana/isobar.json`" + ` is a dashboard of them.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
`)
	for _, m := range table {
		labels := "none"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&sb, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	return sb.String()
}
