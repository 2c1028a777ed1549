package natscluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/isobar-io/isobar/engine/cluster"
)

// askAgain is how long a question waits before it is asked once more: what reaches a
// stream that has no leader is never answered, and there may be one soon.
const askAgain = time.Second

var (
	errNoAnswer = errors.New("no answer in time")
	errLost     = errors.New("the connection was lost")
)

// do asks JetStream by f, which publishes to a subject, and returns its error as one of
// package cluster where there is one. stream is what the question is about, "" if nothing.
func (s *Store) do(ctx context.Context, subject, stream string, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	connection := s.life.now()
	if connection.Err() != nil {
		return s.unavailable(s.conn.LastError())
	}
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.denials.expect(subject, cancel)()
	defer context.AfterFunc(connection, func() { cancel(errLost) })()
	asking, stop := context.WithTimeoutCause(asking, answerTimeout, errNoAnswer)
	defer stop()
	err := f(asking)
	if err == nil {
		return nil
	}
	var denied *ErrDenied
	switch cause := context.Cause(asking); {
	case errors.As(cause, &denied):
		return denied
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err())
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(cause, errLost):
		return s.unavailable(errLost)
	case errors.Is(cause, errNoAnswer), noJetStream(err):
		s.silence(stream)
		return s.unavailable(err)
	}
	return s.kind(err)
}

// ask asks by f, which publishes to a subject and changes nothing, again and again until
// there is an answer.
func ask[T any](ctx context.Context, s *Store, subject, stream string, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var got T
	err := s.do(ctx, subject, stream, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var asking sync.WaitGroup
		defer asking.Wait()
		defer cancel()
		answers := make(chan answer)
		again := time.NewTicker(askAgain)
		defer again.Stop()
		for {
			asking.Go(func() {
				value, err := f(ctx)
				select {
				case answers <- answer{value, err}:
				case <-ctx.Done():
				}
			})
			select {
			case a := <-answers:
				got = a.value
				return a.err
			case <-ctx.Done():
				return ctx.Err()
			case <-again.C:
			}
		}
	})
	return got, err
}

func (s *Store) unavailable(why error) error {
	if why == nil {
		return cluster.ErrUnavailable
	}
	return fmt.Errorf("%w: %s", cluster.ErrUnavailable, why.Error()) // what it was has no say in what it is
}

// codes of JetStream's errors.
const (
	codeStreamNotFound      = 10059
	codeMessageNotFound     = 10037
	codeWrongLast           = 10071
	codeWrongLastReplicated = 10164
	codeStreamNameInUse     = 10058
	codeNoPeers             = 10005
)

// apiCode returns the code of an error of JetStream, 0 if it is none.
func apiCode(err error) jetstream.ErrorCode {
	var e *jetstream.APIError
	if errors.As(err, &e) {
		return e.ErrorCode
	}
	var j jetstream.JetStreamError
	if errors.As(err, &j) && j.APIError() != nil {
		return j.APIError().ErrorCode
	}
	return 0
}

// noJetStream reports whether there is a server, and no JetStream that answers.
func noJetStream(err error) bool {
	var e *jetstream.APIError
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) ||
		errors.As(err, &e) && e.Code == 503
}

// kind returns an answer that is an error as one of package cluster.
func (s *Store) kind(err error) error {
	switch apiCode(err) {
	case codeStreamNotFound, codeMessageNotFound:
		return cluster.ErrNotFound
	case codeWrongLast, codeWrongLastReplicated:
		return cluster.ErrMoved
	default: // it may be none of JetStream
	}
	for _, e := range []error{
		nats.ErrTimeout, nats.ErrConnectionClosed, nats.ErrDisconnected, nats.ErrConnectionReconnecting,
		nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, e) {
			return s.unavailable(err)
		}
	}
	return err
}

// probeEvery is how often a JetStream that did not answer is asked whether it does.
const probeEvery = 500 * time.Millisecond

// silence notes that JetStream did not answer about a stream, and asks until it does.
func (s *Store) silence(stream string) {
	if stream == "" || !s.life.silence() {
		return
	}
	s.start(func() {
		again := time.NewTicker(probeEvery)
		defer again.Stop()
		for s.life.isSilent() {
			select {
			case <-again.C:
			case <-s.ctx.Done():
				return
			}
			if _, err := s.stream(s.ctx, stream); err == nil || errors.Is(err, cluster.ErrNotFound) {
				s.life.speaks()
			}
		}
	})
}
