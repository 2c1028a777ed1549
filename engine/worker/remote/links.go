package remote

import (
	"context"
	"fmt"
	"strconv"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/link/peer"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Over returns the Links that go over the connections of a node, which is that of worker
// self.
func Over(n *peer.Node, self string) Links { return &over{n, self} }

// IncarnationText returns how a node names the life of a worker.
func IncarnationText(n uint64) string { return strconv.FormatUint(n, 10) }

type over struct {
	node *peer.Node
	self string
}

func (o *over) Generation(n tuple.Generation, place map[int]string, peers map[string]Peer, failed func(error)) (GenerationLinks, error) {
	others := map[string]peer.Peer{}
	for name, p := range peers {
		if name != o.self {
			others[name] = peer.Peer{Addr: p.Address, Incarnation: IncarnationText(p.Incarnation)}
		}
	}
	links, err := o.node.Generation(n, others, failed)
	if err != nil {
		return nil, err
	}
	return &overGeneration{links, place, failed}, nil
}

// overGeneration knows on which worker each task is.
type overGeneration struct {
	links  *peer.Generation
	place  map[int]string
	failed func(error)
}

func (g *overGeneration) Inbound(from, to int, c link.Config) *link.Channel {
	return g.links.Inbound(g.place[from], to, c)
}

func (g *overGeneration) Outbound(from, to int, c link.Config) *txn.Outlet {
	unsendable := func(err error) { g.failed(fmt.Errorf("task %d: %w", from, err)) }
	o := g.links.Outbound(g.place[to], to, c, unsendable)
	return txn.NewOutlet(o.NewFrame(), o.FrameLimit(), o.Send)
}

func (g *overGeneration) Connect(ctx context.Context) error { return g.links.Connect(ctx) }
func (g *overGeneration) Unlinked() []string                { return g.links.Unlinked() }
func (g *overGeneration) Close()                            { g.links.Close() }
