package peer

import (
	"net"
	"sync"
	"time"
)

// unheardMax is how long what was sent may stay unacknowledged.
const unheardMax = 5 * time.Second

// tune makes a connection of TCP find out soon that its other end is gone.
func tune(raw net.Conn, lease time.Duration) {
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return
	}
	// What fails here is found out later, by the lease.
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: lease, Interval: max(lease/4, time.Second), Count: 4})
	_ = tcp.SetNoDelay(true)
	setUserTimeout(tcp, min(lease, unheardMax))
}

// batched gathers what TLS writes, a record at a time, until it is flushed. Until it
// holds it passes everything on, for the handshake.
type batched struct {
	net.Conn
	mu   sync.Mutex // TLS may write when it reads
	hold bool
	buf  []byte
}

func (b *batched) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.hold {
		return b.Conn.Write(p)
	}
	b.buf = append(b.buf, p...)
	return len(p), nil
}

func (b *batched) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold = true
	if len(b.buf) == 0 {
		return nil
	}
	_, err := b.Conn.Write(b.buf)
	b.buf = b.buf[:0]
	return err
}
