package link

import (
	"sync"
	"sync/atomic"
)

// Mailbox holds control messages for one goroutine. Put never waits, so that two
// owners that write to each other cannot lock up; what is in it is bounded by the
// protocol: a few messages per task and open batch.
type Mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	spare  []T
	count  atomic.Int32
	signal chan struct{}
}

// NewMailbox returns an empty mailbox.
func NewMailbox[T any]() *Mailbox[T] { return &Mailbox[T]{signal: make(chan struct{}, 1)} }

// Put adds a message.
func (m *Mailbox[T]) Put(v T) {
	m.mu.Lock()
	m.items = append(m.items, v)
	m.count.Store(int32(len(m.items)))
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// Pending reports whether there are messages, without locking.
func (m *Mailbox[T]) Pending() bool { return m.count.Load() > 0 }

// Take returns all messages in order; the slice is valid until the next Take.
func (m *Mailbox[T]) Take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.items
	m.items, m.spare = m.spare[:0], taken
	m.count.Store(0)
	return taken
}

// Signal receives after a Put. It may also receive when there is nothing left.
func (m *Mailbox[T]) Signal() <-chan struct{} { return m.signal }
