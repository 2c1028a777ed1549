package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"sync"
	"time"

	links "github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/link/peer"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// readAtOnce is how much bare TCP reads at a time.
const readAtOnce = 128 << 10

// runTCP sends blocks over a connection until ctx ends.
func runTCP(ctx context.Context, secure bool, counted []paddedCounter) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	in, err := l.Accept()
	if err != nil {
		return errors.Join(err, out.Close())
	}
	defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
	if secure {
		c, err := selfSigned()
		if err != nil {
			return err
		}
		in, out = tls.Server(in, c), tls.Client(out, c)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for block := make([]byte, linkFrameBytes); err == nil; {
			_, err = out.Write(block)
		}
	})
	for block := make([]byte, readAtOnce); ; {
		n, err := in.Read(block)
		counted[0].n.Add(int64(n))
		if err != nil {
			break
		}
	}
	running.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

var linkStream = &tuple.Stream{Component: "source", ID: tuple.DefaultStream, Fields: tuple.Fields{"word", "count"}}

// newPayload returns a function that fills an empty frame, and how many bytes that
// counts for: those that its encoding takes, but for a few.
func newPayload(mode string) (fill func(f *tuple.Frame), size int64, err error) {
	if mode != linkWordsMode && mode != linkCodecMode {
		block := tuple.Bytes(make([]byte, linkFrameBytes))
		return func(f *tuple.Frame) {
			f.Begin(linkStream, false)
			f.Grow(1)
			f.Append2(block, tuple.Int64(1), 0)
		}, linkFrameBytes, nil
	}
	const n = 420
	var words [n]tuple.Value
	for i := range words {
		words[i] = tuple.String(fmt.Sprintf("word%05d", i*i%99991))
	}
	fill = func(f *tuple.Frame) {
		f.Begin(linkStream, true)
		f.Grow(n)
		for i, w := range words {
			if f.Full() {
				f.Grow(n)
			}
			f.Append2(w, tuple.Int64(int64(i)), uint64(i))
		}
	}
	registry, err := wire.NewRegistry()
	if err != nil {
		return nil, 0, err
	}
	var f tuple.Frame
	fill(&f)
	encoded, err := wire.NewEncoder(registry, wire.DefaultLimits()).Append(nil, &f)
	return fill, int64(len(encoded)), err
}

// runCodec encodes and decodes frames until ctx ends.
func runCodec(ctx context.Context, mode string, counted []paddedCounter) error {
	fill, size, err := newPayload(mode)
	if err != nil {
		return err
	}
	registry, err := wire.NewRegistry()
	if err != nil {
		return err
	}
	encoder := wire.NewEncoder(registry, wire.DefaultLimits())
	decoder, err := wire.NewDecoder([]*tuple.Stream{linkStream}, registry, wire.DefaultLimits())
	if err != nil {
		return err
	}
	var f, decoded tuple.Frame
	var data []byte
	for ctx.Err() == nil {
		fill(&f)
		if data, err = encoder.Append(data[:0], &f); err != nil {
			return err
		}
		if err := decoder.Decode(data, &decoded); err != nil {
			return err
		}
		f.Reset()
		counted[0].n.Add(size)
	}
	return ctx.Err()
}

// runLink sends frames on all channels of a link until ctx ends.
func runLink(ctx context.Context, mode string, counted []paddedCounter) (err error) {
	fill, size, err := newPayload(mode)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ends, err := newLinkEnds(ctx, mode == linkTLSMode, stop)
	defer func() { err = errors.Join(err, ends.close()) }()
	if err != nil {
		return err
	}
	readers := make([]linkReader, linkReceivers)
	for i := range readers {
		readers[i].bell = links.NewBell()
	}
	outs := make([]*peer.Outbound, linkChannels)
	for i := range outs {
		r := &readers[i%linkReceivers]
		to := linkChannels + i%linkReceivers
		in := ends.to.Inbound("a", to, links.Config{SourceTask: i, Receiver: r.bell, Frames: 16})
		outs[i] = ends.from.Outbound("b", to, links.Config{SourceTask: i, Done: ctx.Done()}, func(err error) { stop(err) })
		r.inputs = append(r.inputs, in)
		r.unread = append(r.unread, mode == oneStoppedMode && i == 0)
		r.others = append(r.others, mode != oneStoppedMode && mode != allFlowMode || i > 0)
	}
	connected := make(chan error)
	go func() { connected <- ends.to.Connect(ctx) }()
	if err := errors.Join(ends.from.Connect(ctx), <-connected); err != nil {
		return err
	}
	var running sync.WaitGroup
	for i := range readers {
		running.Go(func() { readers[i].run(ctx, &counted[i], size, stop) })
	}
	for _, out := range outs {
		running.Go(func() {
			for f := out.NewFrame(); ctx.Err() == nil; {
				fill(f)
				f, _ = out.Send(f)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// linkReader is a task that reads channels.
type linkReader struct {
	bell   *links.Bell
	inputs []*links.Channel
	unread []bool // inputs that are left alone
	others []bool // inputs that count
}

func (r *linkReader) run(ctx context.Context, counted *paddedCounter, size int64, failed func(error)) {
	for ctx.Err() == nil {
		progress := false
		for i, in := range r.inputs {
			if r.unread[i] {
				continue
			}
			f := in.Receive()
			if f == nil {
				continue
			}
			progress = true
			if !in.InOrder(f) {
				failed(fmt.Errorf("channel from task %d: %w", in.Source(), in.Err()))
				return
			}
			if r.others[i] {
				counted.n.Add(size)
			}
			in.Return(f)
		}
		if !progress {
			r.sleep(ctx)
		}
	}
}

func (r *linkReader) sleep(ctx context.Context) {
	r.bell.Arm()
	defer r.bell.Disarm()
	for i, in := range r.inputs {
		if !r.unread[i] && in.Ready() {
			return
		}
	}
	select {
	case <-r.bell.C():
	case <-ctx.Done():
	}
}

// linkEnds are two workers and a generation.
type linkEnds struct {
	nodes    []*peer.Node
	from, to *peer.Generation
}

func newLinkEnds(ctx context.Context, secure bool, failed func(error)) (*linkEnds, error) {
	e := &linkEnds{}
	var c *tls.Config
	var addrs []string
	for _, worker := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil && secure && c == nil {
			c, err = selfSigned()
		}
		if err != nil {
			return e, err
		}
		addrs = append(addrs, l.Addr().String())
		n, err := peer.NewNode(peer.Config{
			Topology: "bench", Worker: worker, Incarnation: "1", Listener: l, TLS: c,
			Streams: []*tuple.Stream{linkStream}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return e, err
		}
		e.nodes = append(e.nodes, n)
	}
	broken := func(err error) {
		if ctx.Err() == nil {
			failed(err)
		}
	}
	var errs [2]error
	e.from, errs[0] = e.nodes[0].Generation(1, map[string]peer.Peer{"b": {Addr: addrs[1], Incarnation: "1"}}, broken)
	e.to, errs[1] = e.nodes[1].Generation(1, map[string]peer.Peer{"a": {Addr: addrs[0], Incarnation: "1"}}, broken)
	return e, errors.Join(errs[:]...)
}

func (e *linkEnds) close() error {
	var errs []error
	for _, g := range []*peer.Generation{e.from, e.to} {
		if g != nil {
			g.Close()
		}
	}
	for _, n := range e.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// selfSigned returns what both ends of a connection within this process may use.
func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		InsecureSkipVerify: true, // both ends are here
		MinVersion:         tls.VersionTLS13,
	}, nil
}
