package memcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// service is one client's promise to answer requests.
type service struct {
	store   *Store
	handler cluster.Handler
	ctx     context.Context // of its handlers: ends when it is withdrawn
	cancel  context.CancelFunc
}

// Serve implements cluster.Store. If several serve, the one that came last and can be
// reached is asked. stop ends the contexts of running handlers and does not wait for them.
func (c *Store) Serve(name string, h cluster.Handler) (stop func(), err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("serve %q: the connection is closed", name)
	}
	s := &service{store: c, handler: h}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	c.server.services[name] = append(c.server.services[name], s)
	return func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		c.server.withdraw(func(other *service) bool { return other == s })
	}, nil
}

// withdraw ends the services that it is given to choose.
func (s *Server) withdraw(chosen func(*service) bool) {
	for name, all := range s.services {
		s.services[name] = slices.DeleteFunc(all, func(one *service) bool {
			if chosen(one) {
				one.cancel()
				return true
			}
			return false
		})
	}
}

type reply struct {
	body []byte
	err  error
}

// Request implements cluster.Store.
func (c *Store) Request(ctx context.Context, name string, body []byte) ([]byte, error) {
	attempt := fmt.Sprintf("request to %q", name)
	replies := make(chan reply, 1)
	var ours, theirs chan struct{}
	lost := false
	err := c.read(ctx, attempt, func() error {
		for _, s := range slices.Backward(c.server.services[name]) {
			if s.store.isConnected {
				ours, theirs = c.down, s.store.down
				if lost = c.lost > 0; lost {
					c.lost--
				}
				s.answer(c.user, bytes.Clone(body), replies)
				return nil
			}
		}
		return cluster.ErrUnserved
	})
	if err != nil {
		return nil, err
	}
	select {
	case r := <-replies:
		if lost {
			break
		}
		return r.body, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("%s: %w: %w", attempt, cluster.ErrUnavailable, ctx.Err())
		}
		return nil, fmt.Errorf("%s: %w", attempt, ctx.Err())
	case <-ours:
	case <-theirs:
	}
	return nil, fmt.Errorf("%s: %w", attempt, cluster.ErrUnavailable)
}

// answer has a request handled. The reply crosses the wire: of an error only its text.
func (s *service) answer(user string, body []byte, replies chan<- reply) {
	s.store.running.Go(func() {
		body, err := s.handler(s.ctx, user, body)
		if err != nil {
			replies <- reply{err: errors.New(err.Error())}
			return
		}
		replies <- reply{body: bytes.Clone(body)}
	})
}
