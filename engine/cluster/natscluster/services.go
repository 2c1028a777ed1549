package natscluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/isobar-io/isobar/engine/cluster"
)

const (
	// headerError tells that a reply is the text of an error.
	headerError = "Isobar-Error"
	// handlersMax is how many requests to a service are handled at once; others wait.
	handlersMax = 256
	// replyTimeout is how long a request waits whose context does not say.
	replyTimeout = 2 * time.Minute
)

// messageBytesMax is how large a request or a reply may be.
func (s *Store) messageBytesMax() int {
	if most := s.conn.MaxPayload(); most > 0 {
		return int(most - headerBytes)
	}
	return ValueBytesMax
}

// Request implements cluster.Store. Requests and replies are bounded by what the server
// takes as a message, 8 MiB for the one that comes with Isobar; what is larger is an
// error that says so. Without a deadline it waits for two minutes.
func (s *Store) Request(ctx context.Context, service string, body []byte) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("request to %q: %w", service, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	connection := s.life.now()
	if connection.Err() != nil {
		return fail(s.unavailable(s.conn.LastError()))
	}
	if most := s.messageBytesMax(); len(body) > most {
		return fail(fmt.Errorf("it has %d bytes, more than the %d that a request may have", len(body), most))
	}
	m := &nats.Msg{Subject: s.who.requests(service), Reply: s.who.replies(service) + rand.Text(), Data: body}
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.denials.expect(m.Subject, cancel)()
	defer s.denials.expect(m.Reply, cancel)()
	defer context.AfterFunc(connection, func() { cancel(errLost) })()
	asking, stop := context.WithTimeoutCause(asking, replyTimeout, errNoAnswer)
	defer stop()
	answer, err := s.ask(asking, m)
	if err != nil {
		var denied *ErrDenied
		switch cause := context.Cause(asking); {
		case errors.As(cause, &denied):
			return fail(denied)
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fail(fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err()))
		case ctx.Err() != nil:
			return fail(ctx.Err())
		case errors.Is(err, nats.ErrNoResponders):
			return fail(cluster.ErrUnserved)
		}
		return fail(s.unavailable(err))
	}
	if answer.Header.Get(headerError) != "" {
		return nil, errors.New(string(answer.Data))
	}
	return answer.Data, nil
}

func (s *Store) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	subscription, err := s.conn.SubscribeSync(m.Reply)
	if err != nil {
		return nil, err
	}
	defer func() { _ = subscription.Unsubscribe() }() // fails where there is nothing to end
	if err := s.conn.PublishMsg(m); err != nil {
		return nil, err
	}
	return subscription.NextMsgWithContext(ctx)
}

// subscribe subscribes, and waits until the server has taken or refused it. Without a
// server it is subscribed when there is one.
func (s *Store) subscribe(ctx context.Context, subject, queue string, f nats.MsgHandler) (*nats.Subscription, error) {
	var subscription *nats.Subscription
	var err error
	if queue == "" {
		subscription, err = s.conn.Subscribe(subject, f)
	} else {
		subscription, err = s.conn.QueueSubscribe(subject, queue, f)
	}
	if err != nil {
		return nil, err
	}
	s.settle(ctx)
	if denied := denial(s.conn.LastError()); denied != nil && denied.Subject == subject {
		return nil, errors.Join(denied, subscription.Unsubscribe())
	}
	return subscription, nil
}

// settle waits until the server has taken all that was sent so far, if it is there.
func (s *Store) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	defer context.AfterFunc(s.life.now(), cancel)()
	_ = s.conn.FlushWithContext(ctx) // without a server there is nothing to wait for
}

// Serve implements cluster.Store. If several serve, one of them is asked. stop ends the
// contexts of running handlers and does not wait for them; Close does.
func (s *Store) Serve(service string, h cluster.Handler) (stop func(), err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	running := make(chan struct{}, handlersMax)
	subscription, err := s.subscribe(ctx, requestsFrom(service), "serve", func(m *nats.Msg) {
		select {
		case running <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s.start(func() {
			defer func() { <-running }()
			s.answer(ctx, service, m, h)
		})
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve %q: %w", service, err)
	}
	return sync.OnceFunc(func() {
		_ = subscription.Unsubscribe() // fails where there is nothing to end
		s.settle(s.ctx)
		cancel()
	}), nil
}

// answer has a request handled, and replies to whom it is from.
func (s *Store) answer(ctx context.Context, service string, m *nats.Msg, h cluster.Handler) {
	from, err := requester(m.Subject)
	if err == nil && !strings.HasPrefix(m.Reply, from.replies(service)) {
		err = fmt.Errorf("it asks for its reply on %q, which is not its own", m.Reply)
	}
	if err != nil {
		s.opts.Log.Warn("a request is refused", "service", service, "error", err)
		return
	}
	reply := &nats.Msg{Subject: m.Reply}
	body, err := h(ctx, from.user(), m.Data)
	if most := s.messageBytesMax(); err == nil && len(body) > most {
		err = fmt.Errorf("the reply of %q has %d bytes, more than the %d that a reply may have: ask for less", service, len(body), most)
	}
	if reply.Data = body; err != nil {
		reply.Header, reply.Data = nats.Header{headerError: {"1"}}, []byte(err.Error())
	}
	if err := s.conn.PublishMsg(reply); err != nil {
		s.opts.Log.Warn("a reply could not be sent", "service", service, "error", err)
	}
}
