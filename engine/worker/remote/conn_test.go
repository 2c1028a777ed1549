package remote

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow takes little at a time.
type slow struct{ io.Reader }

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Millisecond)
	return s.Reader.Read(p[:min(len(p), 32<<10)])
}

// A large message may take longer than the lease, as long as something of it is taken.
func TestLargeMessagesTakeAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := newConn(here, time.Second)
		c.open()
		defer c.wait()
		defer c.end(errQuit)
		text := strings.Repeat("x", 1<<20)
		c.send(message{Kind: kindRestore, Restore: &restore{RunID: text}})
		began := time.Now()
		m, err := read(bufio.NewReaderSize(slow{there}, 32<<10), maxMessage)
		if err != nil || m.Restore == nil || m.Restore.RunID != text {
			t.Errorf("%v: %v", err, c.reason())
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("it took only %v", took)
		}
		// Whoever takes nothing is lost.
		c.send(message{Kind: kindRestore, Restore: &restore{RunID: text}})
		<-c.done
		if took := time.Since(began); !strings.Contains(c.reason().Error(), "timeout") {
			t.Errorf("after %v: %v", took, c.reason())
		}
	})
}
