package natscluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Options are what Open takes beside the access.
type Options struct {
	// Replicas of the streams that this client makes: 1, or 3 in a group of servers.
	// 0 is 1.
	Replicas int
	// Log is told of what no caller can be told; nil for slog.Default.
	Log *slog.Logger
}

const (
	// answerTimeout is how long the store may take for an answer.
	answerTimeout  = 5 * time.Second
	connectTimeout = 2 * time.Second
	// A server that has gone without a word is noticed after three of these.
	pingInterval  = 3 * time.Second
	reconnectWait = 50 * time.Millisecond
	reconnectMax  = 2 * time.Second
)

// Store is a connection to the coordination store. It implements cluster.Store.
type Store struct {
	conn *nats.Conn
	js   jetstream.JetStream
	who  identity
	opts Options

	life    *liveness
	denials denials
	orphans orphans

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	mu      sync.Mutex     // orders Close after those that start
	running sync.WaitGroup // handlers and probes
}

var _ cluster.Store = (*Store)(nil)

// Open connects to the coordination store. It does not fail because the store is away:
// the connection is made when it is there, and made again whenever it was lost.
func Open(access cluster.StoreAccess, opts Options) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, fmt.Errorf("open the coordination store at %s: %w", strings.Join(access.URLs, ", "), err)
	}
	if len(access.URLs) == 0 {
		return fail(errors.New("it takes a URL such as nats://host:4222"))
	}
	if opts.Replicas == 0 {
		opts.Replicas = 1
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	s := &Store{who: local, opts: opts, life: newLiveness()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	options := s.options()
	if access.Creds != "" {
		who, err := identityOf(access.Creds)
		if err != nil {
			return fail(err)
		}
		s.who = who
		options = append(options, nats.UserCredentials(access.Creds))
	}
	options = append(options, nats.CustomInboxPrefix(s.who.inbox()), nats.Name(string(s.who.role)+" "+s.who.name))
	if access.CA != "" || access.Cert != "" {
		options = append(options, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS13}))
	}
	if access.CA != "" {
		options = append(options, nats.RootCAs(access.CA))
	}
	if access.Cert != "" {
		options = append(options, nats.ClientCert(access.Cert, access.Key))
	}
	conn, err := nats.Connect(strings.Join(access.URLs, ","), options...)
	if err != nil {
		return fail(err)
	}
	s.conn = conn
	if conn.IsConnected() {
		s.life.connected()
	}
	s.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(answerTimeout))
	if err != nil {
		conn.Close()
		return fail(err)
	}
	return s, nil
}

func (s *Store) options() []nats.Option {
	return []nats.Option{
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials may be renewed
		nats.CustomReconnectDelay(reconnectDelay),
		// A request that cannot be sent fails at once, instead of being sent when nobody
		// waits for it.
		nats.ReconnectBufSize(-1),
		nats.Timeout(connectTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(*nats.Conn) { s.life.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { s.life.connected() }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { s.life.disconnected() }),
		nats.ClosedHandler(func(*nats.Conn) { s.life.disconnected() }),
		nats.ErrorHandler(s.asyncError),
	}
}

// reconnectDelay goes up and differs between clients, so that a server that comes back
// is not asked by all of them at once, again and again.
func reconnectDelay(attempts int) time.Duration {
	wait := min(reconnectWait<<min(attempts, 10), reconnectMax)
	return wait/2 + rand.N(wait/2)
}

func (s *Store) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if denied := denial(err); denied != nil {
		s.denials.refused(denied)
		return
	}
	if !errors.Is(err, io.EOF) { // of which all are told by being disconnected
		s.opts.Log.Warn("the coordination store reports an error", "error", err)
	}
}

// identityOf returns who a credentials file is for.
func identityOf(file string) (identity, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return identity{}, fmt.Errorf("read credentials: %w", err)
	}
	token, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		return identity{}, fmt.Errorf("credentials %s: %w", file, err)
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return identity{}, fmt.Errorf("credentials %s: %w", file, err)
	}
	role, name, _ := strings.Cut(claims.Name, ":")
	i := identity{Role(role), name}
	if err := i.check(); err != nil {
		return identity{}, fmt.Errorf("credentials %s are for %q, which is to be ROLE:NAME: %w", file, claims.Name, err)
	}
	return i, nil
}

// Connected implements cluster.Store.
func (s *Store) Connected() bool { return s.life.answers() && s.conn.IsConnected() }

// Changes implements cluster.Store.
func (s *Store) Changes() <-chan struct{} { return s.life.changes }

// Close ends the connection. It waits for handlers, whose contexts end.
func (s *Store) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.conn.Close()
	s.life.disconnected()
	s.running.Wait()
	return nil
}

// start starts what Close waits for, unless it has begun to.
func (s *Store) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.running.Go(f)
	return true
}

// Buckets implements cluster.Store.
func (s *Store) Buckets(ctx context.Context) ([]string, error) {
	var names []string
	err := s.do(ctx, "$JS.API.STREAM.NAMES", "", func(ctx context.Context) error {
		names = nil
		streams := s.js.StreamNames(ctx)
		for stream := range streams.Name() {
			if token, ok := strings.CutPrefix(stream, bucketStreams); ok {
				name, err := unescape(token)
				if err != nil {
					return err
				}
				names = append(names, name)
			}
		}
		return streams.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list buckets: %w", err)
	}
	return names, nil
}

// DeleteBucket implements cluster.Store.
func (s *Store) DeleteBucket(ctx context.Context, name string) error {
	stream := place{name}.stream()
	err := s.do(ctx, "$JS.API.STREAM.DELETE."+stream, stream, func(ctx context.Context) error {
		return s.js.DeleteStream(ctx, stream)
	})
	if err != nil {
		return fmt.Errorf("delete bucket %q: %w", name, err)
	}
	return nil
}
