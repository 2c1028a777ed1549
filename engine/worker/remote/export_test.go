package remote

import "net"

// Join does a worker's part of the handshake.
func Join(nc net.Conn, id Identity, worker string, incarnation uint64) error {
	return id.join(newConn(nc, handshakeTime), hello{Worker: worker, Incarnation: incarnation})
}
