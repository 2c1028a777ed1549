//go:build !linux

package peer

import (
	"net"
	"time"
)

// setUserTimeout does nothing here: the lease finds out.
func setUserTimeout(*net.TCPConn, time.Duration) {}
