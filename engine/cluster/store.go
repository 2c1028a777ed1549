package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// What a Bucket and an Objects may say.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	// ErrMoved: the key has another revision by now.
	ErrMoved = errors.New("changed by somebody else")
	// ErrUnavailable: nobody answers; what was asked for may have been done.
	ErrUnavailable = errors.New("the coordination store does not answer")
	// ErrUnserved is an ErrUnavailable after which it is certain that nothing was done:
	// the service that was asked is served by nobody.
	ErrUnserved = fmt.Errorf("nobody serves it: %w", ErrUnavailable)
)

// Entry is a key with its value. Revision is different for every change in a bucket and
// goes up.
type Entry struct {
	Key      string
	Value    []byte // nil: the key was deleted
	Revision uint64
}

// Bucket is a map of small values with a history of one, such as a bucket of JetStream.
// Writes that succeed are on disk. All methods may be called from any goroutine.
type Bucket interface {
	Get(ctx context.Context, key string) (Entry, error)
	// Create sets a key that must not exist: ErrExists.
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Update sets a key that must have that revision: ErrMoved.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Put sets a key whatever it was.
	Put(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Delete removes a key that must have that revision, any if it is 0.
	Delete(ctx context.Context, key string, revision uint64) error
	// List returns all keys with their values. That of a record that was damaged is empty.
	List(ctx context.Context) ([]Entry, error)
	// Watch sends what there is of the keys with a prefix, "" for all, then an Entry
	// without a key, then every change. After an outage it sends all of it anew, ended by
	// an Entry without a key. It is closed when ctx ends, and only then.
	//
	// Who applies the entries to a map, one after the other, always has the right map when
	// an Entry without a key comes: what is sent anew includes keys that were sent before
	// and are gone, as deleted. A value that was replaced before it was received may be
	// left out.
	Watch(ctx context.Context, prefix string) (<-chan Entry, error)
}

// Object is a large value.
type Object struct {
	Name     string
	Size     int64
	SHA256   string // hex, of what was stored
	Revision string // different for every Put
	Meta     map[string]string
}

// Objects holds large values. Put is atomic: readers see the old or the new content.
type Objects interface {
	// Put stores what r yields. It fails, and stores nothing, if sha256 is given and is
	// not that of the content.
	Put(ctx context.Context, name string, r io.Reader, sha256 string, meta map[string]string) (Object, error)
	// Get verifies size and checksum while it is read: the last Read fails if they are not right.
	Get(ctx context.Context, name string) (io.ReadCloser, Object, error)
	// GetFrom reads from a byte on, and nothing of what is before. It verifies the size; the
	// checksum is for whoever has read all.
	GetFrom(ctx context.Context, name string, offset int64) (io.ReadCloser, Object, error)
	Info(ctx context.Context, name string) (Object, error)
	SetMeta(ctx context.Context, name string, meta map[string]string) error
	// Delete removes an object. Those who are reading it may go on for a while.
	Delete(ctx context.Context, name string) error
	// List returns all objects. One that cannot be described has its Name and nothing else.
	List(ctx context.Context) ([]Object, error)
}

// Handler answers a request. user is who sends it, as the coordination store has proved.
type Handler func(ctx context.Context, user string, body []byte) (reply []byte, err error)

// Store is the coordination store of a cluster.
type Store interface {
	// Bucket opens a bucket, and makes it if create is set.
	Bucket(ctx context.Context, name string, create bool) (Bucket, error)
	DeleteBucket(ctx context.Context, name string) error
	// Buckets returns the names of all buckets.
	Buckets(ctx context.Context) ([]string, error)
	Objects(ctx context.Context, name string) (Objects, error)
	// Request sends a request and waits for the reply: ErrUnserved if nobody serves
	// it, ErrUnavailable if ctx reaches its deadline before. An error of the Handler
	// comes back as its text.
	Request(ctx context.Context, service string, body []byte) ([]byte, error)
	// Serve answers the requests for a service until stop is called.
	Serve(service string, h Handler) (stop func(), err error)
	// Connected reports whether the store answers now; Changes receives when that changes.
	Connected() bool
	Changes() <-chan struct{}
	Close() error
}

// Sweeper is a Store that has something to tidy up now and then, such as parts of objects
// whose writers have died.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// Services: what Request and Serve are given. Nimbus serves ServiceNimbus, its leader
// alone; each supervisor and each topology master have one of their own.
const ServiceNimbus = "nimbus"

// SupervisorService returns the service of a supervisor.
func SupervisorService(id string) string { return "supervisor." + id }

// MasterService returns the service of a topology's master.
func MasterService(id string) string { return "master." + id }
