package app

import (
	"encoding/json"
	"net"
	"net/http"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine"
)

// OperatorHeader must be in every request that changes something, so that no web page
// can make a browser send one.
const OperatorHeader = "Isobar-Operator"

// operate adds what an operator may do to the pages of a run:
//
//	GET  /operate/head                   the head as the run knows it
//	POST /operate/savepoint?name=NAME    take a checkpoint and pin it
//	POST /operate/rollback?to=G.B        go back to a kept checkpoint; with
//	                                     &drop-unpublished=true also to one that was undone
//	                                     before its transactions were published
//
// The last two are for callers on this machine only, because nobody has to prove here who
// they are.
func operate(c *engine.Control, pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.HandleFunc("GET /operate/head", func(w http.ResponseWriter, r *http.Request) {
		h, err := c.Head(r.Context())
		respond(w, h, err)
	})
	mux.HandleFunc("POST /operate/savepoint", local(func(w http.ResponseWriter, r *http.Request) {
		refs, err := c.Savepoint(r.Context(), r.URL.Query().Get("name"))
		respond(w, refs, err)
	}))
	mux.HandleFunc("POST /operate/rollback", local(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		err := c.Rollback(r.Context(), query.Get("to"), query.Get("drop-unpublished") == "true")
		var h *checkpoint.Head
		if err == nil {
			h, err = c.Head(r.Context())
		}
		respond(w, h, err)
	}))
	return mux
}

// local refuses requests from other machines, and from web pages.
func local(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil || !net.ParseIP(host).IsLoopback() {
			http.Error(w, "only from the machine on which the topology runs", http.StatusForbidden)
			return
		}
		if r.Header.Get(OperatorHeader) == "" {
			http.Error(w, "the header "+OperatorHeader+" is missing", http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// respond writes v as JSON, or what is wrong as text.
func respond(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked has gone
}
