package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Direct returns a transport that hands requests to a server in this process.
func Direct(server http.Handler) http.RoundTripper { return direct{server} }

type direct struct{ server http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	defer served.Body.Close()
	reply := httptest.NewRecorder()
	d.server.ServeHTTP(reply, served)
	resp := reply.Result()
	resp.Request = r
	return resp, nil
}

// Fault is what can go wrong with a request.
type Fault int

// The faults. Those that do not fit a request do nothing.
const (
	None         Fault = iota
	Unavailable        // 503
	TooMany            // 429
	InConflict         // of a PUT: 409
	ServerError        // served, and answered with 500
	Reset              // it never arrives
	LostReply          // it arrives, and the connection breaks before the reply
	Late               // of a PUT: as LostReply, but it arrives about when the next one does
	CutRequest         // of a PUT: the connection breaks half-way
	CutReply           // of a GET: the connection breaks half-way through the reply
	Hang               // it never arrives, and nobody says so
	HangServed         // it arrives, and there is never a reply
	StallReply         // of a GET: half of the reply, and then nothing
	NotFound           // of a GET: 404, though it may be there
	AlterRequest       // of a PUT: another byte
	AlterReply         // of a GET: another byte
	StaleList          // a listing as it was when it was asked for last
	Swallow            // of a PUT: it never arrives, and something in between answers 200
)

// Network is a transport with faults. It may be used by any number of goroutines.
type Network struct {
	Base http.RoundTripper
	// Pick says what goes wrong with a request. nil: nothing.
	Pick func(r *http.Request) Fault

	mu      sync.Mutex
	late    map[string]func() // by path: what is still to arrive
	listed  map[string][]byte // by URL
	counts  map[Fault]int
	offline bool
}

// Random returns a Pick that makes a share of the requests go wrong in one of some ways,
// but never more than two in a row of the same method and path.
func Random(seed uint64, share float64, faults ...Fault) func(r *http.Request) Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	row := map[string]int{}
	return func(r *http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		key := r.Method + r.URL.Path
		if row[key] == 2 || random.Float64() >= share {
			row[key] = 0
			return None
		}
		row[key]++
		return faults[random.IntN(len(faults))]
	}
}

// SetOffline makes all requests fail, or no longer.
func (n *Network) SetOffline(offline bool) {
	n.mu.Lock()
	n.offline = offline
	n.mu.Unlock()
}

// Counts returns how often each fault has happened.
func (n *Network) Counts() map[Fault]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	counts := map[Fault]int{}
	for f, c := range n.counts {
		counts[f] = c
	}
	return counts
}

// errBroken is what a broken connection looks like.
var errBroken = errors.New("the connection was broken")

// RoundTrip implements http.RoundTripper.
func (n *Network) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	fault := None
	if n.Pick != nil {
		fault = n.Pick(r)
	}
	n.mu.Lock()
	offline := n.offline
	before, after := n.arriving(r.URL.Path)
	n.mu.Unlock()
	if offline {
		return nil, errBroken
	}
	before()
	defer after()
	if !fits(fault, r, body) {
		fault = None
	}
	n.count(fault)
	if r.Method == http.MethodPut {
		return n.send(r, body, fault)
	}
	return n.ask(r, fault)
}

func (n *Network) count(f Fault) {
	n.mu.Lock()
	if n.counts == nil {
		n.counts = map[Fault]int{}
	}
	n.counts[f]++
	n.mu.Unlock()
}

// arriving returns what of a path arrives before and after the request that is about to
// be served. The caller holds mu.
func (n *Network) arriving(path string) (before, after func()) {
	nothing := func() {}
	arrive, ok := n.late[path]
	if !ok {
		return nothing, nothing
	}
	delete(n.late, path)
	if rand.IntN(2) == 0 {
		return arrive, nothing
	}
	return nothing, arrive
}

func fits(f Fault, r *http.Request, body []byte) bool {
	list := strings.Contains(r.URL.RawQuery, "list-type")
	switch f {
	case Late, InConflict, Swallow:
		return r.Method == http.MethodPut
	case CutRequest, AlterRequest:
		return r.Method == http.MethodPut && len(body) > 0
	case CutReply, StallReply:
		return r.Method == http.MethodGet
	case NotFound, AlterReply:
		return r.Method == http.MethodGet && !list
	case StaleList:
		return list
	default:
		return true
	}
}

// send carries out a PUT.
func (n *Network) send(r *http.Request, body []byte, fault Fault) (*http.Response, error) {
	switch fault {
	case CutRequest:
		_ = drop(n.base(r.Context(), r, io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{})))
		return nil, errBroken
	case AlterRequest:
		body = slices.Clone(body)
		body[len(body)/2] ^= 0x10
	case Late:
		n.mu.Lock()
		if n.late == nil {
			n.late = map[string]func(){}
		}
		n.late[r.URL.Path] = func() {
			_ = drop(n.base(context.WithoutCancel(r.Context()), r, bytes.NewReader(body)))
		}
		n.mu.Unlock()
		return nil, errBroken
	case InConflict:
		return answer(r, http.StatusConflict, "ConditionalRequestConflict"), nil
	case Swallow:
		return answer(r, http.StatusOK, "Welcome"), nil
	default:
	}
	return n.serve(r, fault, func() (*http.Response, error) { return n.base(r.Context(), r, bytes.NewReader(body)) })
}

// ask carries out what is not a PUT.
func (n *Network) ask(r *http.Request, fault Fault) (*http.Response, error) {
	resp, err := n.serve(r, fault, func() (*http.Response, error) { return n.base(r.Context(), r, nil) })
	if err != nil || resp.StatusCode >= 300 {
		return resp, err
	}
	list := strings.Contains(r.URL.RawQuery, "list-type")
	if !list && !slices.Contains([]Fault{CutReply, StallReply, AlterReply}, fault) {
		return resp, nil
	}
	data, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if list {
		data = n.remember(r.URL.String(), data, fault == StaleList)
		resp.ContentLength = int64(len(data))
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	switch half := bytes.NewReader(data[:len(data)/2]); fault {
	case CutReply:
		resp.Body = io.NopCloser(io.MultiReader(half, broken{}))
	case StallReply:
		resp.Body = io.NopCloser(io.MultiReader(half, silent{r.Context()}))
	case AlterReply:
		if len(data) > 0 {
			data[len(data)/2] ^= 0x10
		}
	default:
	}
	return resp, nil
}

// remember keeps a listing, and returns it or the one before.
func (n *Network) remember(url string, data []byte, stale bool) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listed == nil {
		n.listed = map[string][]byte{}
	}
	old, ok := n.listed[url]
	n.listed[url] = slices.Clone(data)
	if stale && ok {
		return old
	}
	return data
}

// serve carries out a request, with the faults that any may have.
func (n *Network) serve(r *http.Request, fault Fault, do func() (*http.Response, error)) (*http.Response, error) {
	switch fault {
	case Unavailable:
		return answer(r, http.StatusServiceUnavailable, "SlowDown"), nil
	case TooMany:
		return answer(r, http.StatusTooManyRequests, "TooManyRequests"), nil
	case NotFound:
		return answer(r, http.StatusNotFound, "NoSuchKey"), nil
	case Reset:
		return nil, errBroken
	case Hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
	}
	resp, err := do()
	switch fault {
	case ServerError:
		if err := drop(resp, err); err != nil {
			return nil, err
		}
		return answer(r, http.StatusInternalServerError, "InternalError"), nil
	case LostReply:
		return nil, errors.Join(errBroken, drop(resp, err))
	case HangServed:
		_ = drop(resp, err) // nobody hears of it
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		return resp, err
	}
}

func (n *Network) base(ctx context.Context, r *http.Request, body io.Reader) (*http.Response, error) {
	again := r.Clone(ctx)
	again.Body = nil
	if body != nil && r.ContentLength > 0 {
		again.Body = io.NopCloser(body)
	}
	return n.Base.RoundTrip(again)
}

func drop(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func answer(r *http.Request, status int, code string) *http.Response {
	body := fmt.Sprintf("<Error><Code>%s</Code><Message>injected</Message></Error>", code)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d injected", status), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/xml"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// broken is the rest of a body whose connection has broken.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// silent is the rest of a body that never comes.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
