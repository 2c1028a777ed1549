// Package natsserver is the coordination store that comes with Isobar: a NATS server
// with JetStream in the process that starts it, alone or as one of a group of three.
package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

// Options say how to run a server.
type Options struct {
	// Host is where it listens, 127.0.0.1 if it is empty; Port 0 is any free one.
	Host string
	Port int
	// StoreDir is the folder of its data, which it has for itself.
	StoreDir string
	// StoreBytesMax bounds what is kept there; 0 is three quarters of what is free.
	StoreBytesMax int64
	// Name is that of the server within its group, where it must be the only one that has it.
	Name string
	// Group makes it one of several servers.
	Group Group
	TLS   TLS
	// Trust is whose users it lets in; without it everybody may do everything.
	Trust *Trust
	// Insecure allows to listen without TLS and Trust where other machines reach it.
	Insecure bool
	// Log is told what the server has to say; nil for slog.Default.
	Log *slog.Logger `json:"-"`
}

// Group is a group of servers that keep the same data: three, of which one may fail.
type Group struct {
	Name string // the same for all; "" for a server that is alone
	Host string // where it listens for the others, as Options.Host
	Port int
	// Advertise is the host by which the others reach it. They tell each other, and compare
	// it with its certificate. "" is the address that a connection comes from.
	Advertise string
	// Routes are the addresses, host:port, of the others. A group knows the rest by itself.
	Routes []string
}

// TLS are PEM files. The servers of a group prove to each other that their certificates
// are of the CA, so these must be good for clients and for servers.
type TLS struct {
	CA   string
	Cert string
	Key  string
}

// Trust are signed claims, as natscluster.Keys has them.
type Trust struct {
	Operator string
	Accounts []string // the system account and that of the cluster
}

const (
	// payloadBytesMax is how large a message may be: a value of 1 MiB, or a reply with
	// more than that.
	payloadBytesMax = 8 << 20
	memoryBytesMax  = 64 << 20
	startTimeout    = 10 * time.Second
	// A client or another server that was switched off is noticed after three of these.
	// Until then requests go to it, and nobody answers them.
	pingInterval = 4 * time.Second
	pingsMax     = 2
	loopback     = "127.0.0.1"
)

// Server is a running server.
type Server struct {
	nats *server.Server
	free func() error // of the folder
}

// Start starts a server and returns when clients can connect. A write that it has
// acknowledged is on disk.
func Start(opts Options) (*Server, error) {
	s, err := start(opts)
	if err != nil {
		return nil, fmt.Errorf("start a NATS server in %s: %w", opts.StoreDir, err)
	}
	return s, nil
}

func start(opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	configuration, err := opts.configuration()
	if err != nil {
		return nil, err
	}
	free, err := lockFolder(opts.StoreDir)
	if err != nil {
		return nil, err
	}
	nats, err := server.NewServer(configuration)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	log := &logger{log: opts.Log}
	nats.SetLoggerV2(log, false, false, false)
	s := &Server{nats: nats, free: free}
	nats.Start()
	if fatal := log.fatal.Load(); fatal != nil {
		return nil, errors.Join(errors.New(*fatal), s.Shutdown())
	}
	if !nats.ReadyForConnections(startTimeout) {
		return nil, errors.Join(fmt.Errorf("it was not ready within %s", startTimeout), s.Shutdown())
	}
	return s, nil
}

// ClientURL is where clients reach the server.
func (s *Server) ClientURL() string { return s.nats.ClientURL() }

// Leads reports whether the server leads its group, as one that is alone does.
func (s *Server) Leads() bool { return s.nats.JetStreamIsLeader() }

// Subscriptions is how many subscriptions it has, its own included.
func (s *Server) Subscriptions() uint32 { return s.nats.NumSubscriptions() }

// Shutdown stops the server and waits until it has stopped.
func (s *Server) Shutdown() error {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
	return s.free()
}

// check returns everything that is wrong.
func (o *Options) check() error {
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if o.StoreDir == "" {
		refuse("it has no folder for its data")
	}
	if (o.TLS.Cert == "") != (o.TLS.Key == "") {
		refuse("TLS takes a certificate and its key, and only one of them is given")
	}
	listeners := []string{o.Host}
	if o.Group.Name != "" {
		listeners = append(listeners, o.Group.Host)
		if o.Name == "" || o.Group.Port == 0 || len(o.Group.Routes) == 0 {
			refuse("a server of a group has a name, a port for the others and the address of at least one of them")
		}
		if o.TLS.Cert != "" && o.TLS.CA == "" {
			refuse("with TLS a server of a group takes the CA of the others' certificates")
		}
	} else if len(o.Group.Routes) > 0 || o.Group.Port != 0 {
		refuse("a server of a group takes the group's name")
	}
	for _, host := range listeners {
		if o.Insecure || isLoopback(host) {
			continue
		}
		if o.TLS.Cert == "" || o.Trust == nil {
			refuse("listening on %q, where other machines reach it, takes TLS and credentials; listen on %s, or say that it is to be insecure", host, loopback)
		}
	}
	return errors.Join(wrong...)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

func orLoopback(host string) string {
	if host == "" {
		return loopback
	}
	return host
}

func (o *Options) configuration() (*server.Options, error) {
	c := &server.Options{
		ServerName:             o.Name,
		Host:                   orLoopback(o.Host),
		Port:                   o.Port,
		MaxPayload:             payloadBytesMax,
		PingInterval:           pingInterval,
		MaxPingsOut:            pingsMax,
		JetStream:              true,
		StoreDir:               o.StoreDir,
		SyncAlways:             true,
		JetStreamMaxMemory:     memoryBytesMax,
		JetStreamMaxStore:      o.StoreBytesMax,
		NoSigs:                 true,
		NoLog:                  true, // set apart
		DisableJetStreamBanner: true,
	}
	if c.Port == 0 {
		c.Port = server.RANDOM_PORT
	}
	if err := o.secure(c); err != nil {
		return nil, err
	}
	if o.Group.Name == "" {
		return c, nil
	}
	c.Cluster.Name, c.Cluster.Host, c.Cluster.Port = o.Group.Name, orLoopback(o.Group.Host), o.Group.Port
	// Clients know the servers by the names that are in their certificates; what the group
	// would tell them is addresses.
	c.Cluster.NoAdvertise = true
	if o.Group.Advertise != "" {
		c.Cluster.Advertise = net.JoinHostPort(o.Group.Advertise, strconv.Itoa(o.Group.Port))
	}
	for _, route := range o.Group.Routes {
		host, port, err := net.SplitHostPort(route)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return nil, fmt.Errorf("route %q: it must be host:port: %w", route, err)
		}
		c.Routes = append(c.Routes, &url.URL{Scheme: "nats-route", Host: net.JoinHostPort(host, port)})
	}
	return c, nil
}

// secure sets TLS and who is trusted.
func (o *Options) secure(c *server.Options) error {
	if o.TLS.Cert != "" {
		clients, routes, err := o.TLS.configurations()
		if err != nil {
			return err
		}
		c.TLS, c.TLSConfig = true, clients
		c.Cluster.TLSConfig = routes
	}
	if o.Trust == nil {
		return nil
	}
	operator, err := jwt.DecodeOperatorClaims(o.Trust.Operator)
	if err != nil {
		return fmt.Errorf("the operator that it is to trust: %w", err)
	}
	accounts := &server.MemAccResolver{}
	for _, token := range o.Trust.Accounts {
		claims, err := jwt.DecodeAccountClaims(token)
		if err != nil {
			return fmt.Errorf("an account that it is to trust: %w", err)
		}
		if err := accounts.Store(claims.Subject, token); err != nil {
			return fmt.Errorf("account %q: %w", claims.Name, err)
		}
	}
	c.TrustedOperators, c.SystemAccount = []*jwt.OperatorClaims{operator}, operator.SystemAccount
	c.AccountResolver = accounts
	return nil
}
