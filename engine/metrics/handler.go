// Package metrics shows a run to the outside over HTTP: its metrics for Prometheus,
// its health, and profiles of the process.
package metrics

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isobar-io/isobar/engine/master"
)

// Handler serves /metrics, /healthz and /debug/pprof/ of one process. Until Watch is
// called it has no run to show.
type Handler struct {
	mux http.ServeMux
	run atomic.Pointer[master.Inspector]
}

// NewHandler returns a Handler.
func NewHandler() *Handler {
	h := &Handler{}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), h)
	h.mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	h.mux.HandleFunc("GET /healthz", h.health)
	h.mux.HandleFunc("/debug/pprof/", pprof.Index)
	h.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	h.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	h.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	h.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return h
}

// Watch shows a run from now on.
func (h *Handler) Watch(run *master.Inspector) { h.run.Store(run) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Health is the answer of /healthz.
type Health struct {
	Status        string         `json:"status"` // "starting", "ok", "degraded" or "failed"
	Topology      string         `json:"topology,omitempty"`
	UptimeSeconds float64        `json:"uptimeSeconds"`
	Regions       []RegionHealth `json:"regions"`
}

// RegionHealth is the part of one region.
type RegionHealth struct {
	Region         string `json:"region"`
	State          string `json:"state"` // what it is doing, in words
	Generation     uint64 `json:"generation"`
	PendingBatches int    `json:"pendingBatches"`
	Restarts       uint64 `json:"restarts"`
	// The newest complete checkpoint and its age; left out if there is none.
	LastCheckpoint           string   `json:"lastCheckpoint,omitempty"`
	LastCheckpointAgeSeconds *float64 `json:"lastCheckpointAgeSeconds,omitempty"`
	Degraded                 []string `json:"degraded,omitempty"` // what is wrong and may get well
	Error                    string   `json:"error,omitempty"`    // why the region has failed
}

func (h *Handler) health(w http.ResponseWriter, _ *http.Request) {
	health := h.look(time.Now())
	w.Header().Set("Content-Type", "application/json")
	if health.Status == "starting" || health.Status == "failed" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(health) // the client has gone
}

func (h *Handler) look(now time.Time) Health {
	run := h.run.Load()
	if run == nil {
		return Health{Status: "starting", Regions: []RegionHealth{}}
	}
	health := Health{Status: "ok", Topology: run.Plan().Topology, UptimeSeconds: run.Elapsed().Seconds()}
	failed := false
	for _, s := range run.Regions() {
		r := RegionHealth{
			Region:         s.Name,
			State:          s.Phase,
			Generation:     uint64(s.Generation),
			PendingBatches: s.Pending,
			Restarts:       s.Restarts,
			Degraded:       s.Degraded,
		}
		if s.Last != nil {
			age := now.Sub(time.UnixMilli(s.Last.UnixMilli)).Seconds()
			r.LastCheckpoint, r.LastCheckpointAgeSeconds = s.Last.String(), &age
		}
		if len(s.Degraded) > 0 {
			health.Status = "degraded"
		}
		if s.Failed {
			r.Error, failed = s.LastError, true
		}
		health.Regions = append(health.Regions, r)
	}
	if failed {
		health.Status = "failed"
	}
	return health
}
