package memcluster_test

import (
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/clustertest"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

func TestConformance(t *testing.T) {
	clustertest.Run(t, func(*testing.T) clustertest.Place {
		server := memcluster.New()
		return clustertest.Place{
			Connect: func(user string) cluster.Store { return server.Connect(user) },
			Stop:    server.Stop,
			Start:   server.Start,
			Cut:     func(s cluster.Store) { s.(*memcluster.Store).Cut() },
			Heal:    func(s cluster.Store) { s.(*memcluster.Store).Heal() },
		}
	})
}
