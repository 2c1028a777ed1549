package pebblestate

import "github.com/isobar-io/isobar/checkpoint"

var (
	_ checkpoint.StateMeter = (*state)(nil)
	_ checkpoint.CacheMeter = (*Opener)(nil)
)

// Stats implements checkpoint.StateMeter.
func (s *state) Stats() checkpoint.StateStats {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return checkpoint.StateStats{}
	}
	s.reads.Add(1)
	s.mu.Unlock()
	defer s.reads.Done()
	m := s.db.Metrics()
	stats := checkpoint.StateStats{
		MemoryBytes: int64(m.MemTable.Size + m.MemTable.ZombieSize),
		DiskBytes:   int64(m.DiskSpaceUsage()),
		ReadDepth:   m.ReadAmp(),
		DebtBytes:   int64(m.Compact.EstimatedDebt),
	}
	for _, level := range m.Levels {
		stats.Tables += level.TablesCount
	}
	return stats
}

// CacheBytes implements checkpoint.CacheMeter.
func (o *Opener) CacheBytes() (held, limit int64) { return o.blocks.Metrics().Size, o.blocks.MaxSize() }
