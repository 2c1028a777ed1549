package memcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Server is the store that clients connect to. All methods may be called from any
// goroutine.
type Server struct {
	mu       sync.Mutex
	up       bool
	unknown  int // writes, of whomever, whose reply will be lost
	puts     uint64
	buckets  map[string]*bucket
	objects  map[string]map[string]object
	services map[string][]*service // the newest last
	stores   map[*Store]bool
}

// New returns a server that is up and empty.
func New() *Server {
	return &Server{
		up:       true,
		buckets:  map[string]*bucket{},
		objects:  map[string]map[string]object{},
		services: map[string][]*service{},
		stores:   map[*Store]bool{},
	}
}

// Connect returns a client; handlers are told that its requests are from user. Clients
// may connect while the server is stopped; they are not answered before it starts.
func (s *Server) Connect(user string) *Store {
	c := &Store{
		server:  s,
		user:    user,
		changes: make(chan struct{}, 1),
		down:    make(chan struct{}),
		watches: map[*watch]bool{},
	}
	close(c.down)
	s.change(func() { s.stores[c] = true })
	return c
}

// Stop makes the server answer nobody until Start.
func (s *Server) Stop() { s.change(func() { s.up = false }) }

// Start ends Stop. What was stored is still there; watches send all of it anew.
func (s *Server) Start() { s.change(func() { s.up = true }) }

// Unknown makes the next write of any client be carried out and yet return
// cluster.ErrUnavailable. Called n times, it does so for the next n writes.
func (s *Server) Unknown() { s.change(func() { s.unknown++ }) }

// Wipe removes all buckets and objects, as if the servers had lost their disks. Watches
// tell so as after an outage.
func (s *Server) Wipe() {
	s.change(func() {
		clear(s.buckets)
		clear(s.objects)
		for c := range s.stores {
			if c.isConnected {
				c.resync()
			}
		}
	})
}

// Damage alters the first byte of an object, or adds one, and leaves what is said of it as
// it was. The object must exist.
func (s *Server) Damage(objects, name string) {
	s.change(func() {
		o, ok := s.objects[objects][name]
		if !ok {
			panic(fmt.Sprintf("memcluster: no object %q in %q to damage", name, objects))
		}
		altered := append([]byte{}, o.content...)
		if len(altered) == 0 {
			altered = []byte{0}
		}
		altered[0] ^= 0xff
		o.content = altered
		s.objects[objects][name] = o
	})
}

// change does what alters who is connected, and tells those concerned.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	for c := range s.stores {
		c.refresh()
	}
}

// Store is one client's connection. It implements cluster.Store.
type Store struct {
	server  *Server
	user    string
	changes chan struct{}
	running sync.WaitGroup // its handlers

	// The rest is guarded by server.mu.
	cut, closed bool
	isConnected bool
	down        chan struct{} // closed while it is not connected
	unknown     int           // writes whose reply will be lost
	lost        int           // requests whose reply will be lost
	watches     map[*watch]bool
}

var _ cluster.Store = (*Store)(nil)

// Cut makes the server answer this client no more until Heal. What it serves is not
// reached either.
func (c *Store) Cut() { c.server.change(func() { c.cut = true }) }

// Heal ends Cut.
func (c *Store) Heal() { c.server.change(func() { c.cut = false }) }

// Unknown makes the next write of this client be carried out and yet return
// cluster.ErrUnavailable, also if it fails. Called n times, it does so for n writes.
func (c *Store) Unknown() { c.server.change(func() { c.unknown++ }) }

// LoseReply makes the next request of this client be handled and yet return
// cluster.ErrUnavailable. Called n times, it does so for n requests.
func (c *Store) LoseReply() { c.server.change(func() { c.lost++ }) }

// refresh brings the connection to the state that it should have.
func (c *Store) refresh() {
	is := c.server.up && !c.cut && !c.closed
	if is == c.isConnected {
		return
	}
	c.isConnected = is
	if is {
		c.down = make(chan struct{})
		c.resync()
	} else {
		close(c.down)
		for w := range c.watches {
			w.queue = nil
		}
	}
	ring(c.changes)
}

func (c *Store) resync() {
	for w := range c.watches {
		w.resync()
	}
}

// ring tells whoever receives from bell that there is something new.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// read does f if the store answers. What fails says what was attempted.
func (c *Store) read(ctx context.Context, attempt string, f func() error) error {
	err := ctx.Err()
	if err == nil {
		err = c.locked(f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", attempt, err)
	}
	return nil
}

func (c *Store) locked(f func() error) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if !c.isConnected {
		return cluster.ErrUnavailable
	}
	return f()
}

// write is read for what changes something: its reply may be lost.
func (c *Store) write(ctx context.Context, attempt string, f func() error) error {
	return c.read(ctx, attempt, func() error { return c.reply(f()) })
}

// reply returns what a client is told of a write whose outcome is err.
func (c *Store) reply(err error) error {
	for _, n := range []*int{&c.unknown, &c.server.unknown} {
		if *n > 0 {
			*n--
			return cluster.ErrUnavailable
		}
	}
	return err
}

// Bucket implements cluster.Store.
func (c *Store) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	err := c.read(ctx, fmt.Sprintf("open bucket %q", name), func() error {
		switch {
		case name == "":
			return errors.New("a bucket has a name")
		case c.server.buckets[name] != nil:
			return nil
		case !create:
			return cluster.ErrNotFound
		}
		c.server.buckets[name] = &bucket{entries: map[string]cluster.Entry{}}
		return c.reply(nil)
	})
	if err != nil {
		return nil, err
	}
	return &handle{store: c, name: name}, nil
}

// DeleteBucket implements cluster.Store. A bucket that is not there is
// cluster.ErrNotFound. Watches of it tell that all its keys are gone, and go on with a
// new bucket of that name.
func (c *Store) DeleteBucket(ctx context.Context, name string) error {
	return c.write(ctx, fmt.Sprintf("delete bucket %q", name), func() error {
		b := c.server.buckets[name]
		if b == nil {
			return cluster.ErrNotFound
		}
		for _, e := range b.sorted() {
			b.revision++
			c.server.announce(name, cluster.Entry{Key: e.Key, Revision: b.revision})
		}
		delete(c.server.buckets, name)
		return nil
	})
}

// Buckets implements cluster.Store, in alphabetical order.
func (c *Store) Buckets(ctx context.Context) ([]string, error) {
	var names []string
	err := c.read(ctx, "list buckets", func() error {
		names = slices.Sorted(maps.Keys(c.server.buckets))
		return nil
	})
	return names, err
}

// Connected implements cluster.Store.
func (c *Store) Connected() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.isConnected
}

// Changes implements cluster.Store. Changes that were not received are one.
func (c *Store) Changes() <-chan struct{} { return c.changes }

// Close implements cluster.Store: it ends what the client serves, waits for its
// handlers, and is not to be called by one. Its watches send nothing more; they are
// closed when their contexts end.
func (c *Store) Close() error {
	c.server.change(func() {
		c.closed = true
		c.server.withdraw(func(s *service) bool { return s.store == c })
	})
	c.running.Wait()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.stores, c)
	return nil
}
