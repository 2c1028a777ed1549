package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// logs are what processes write to stdout and stderr. Both are one file, opened to append,
// that a process writes to itself: there is no pipe that could fill, and what it writes
// while it has no supervisor is there.
//
// A log that has become too large is copied to a part beside it and cut to nothing; as the
// process appends, it goes on at the beginning. What it writes between the last read of
// the copy and the cut, a few microseconds, is lost. If the disk is full, so is what could
// not be copied once the log has twice the size: it must not keep the disk full.
//
// A part is named FILE.BEGIN after the offset of its first byte in all that was ever
// written, so that offsets stay what they are when the log is cut and when old parts go.
type logs struct {
	dir   string
	max   int64
	parts int // that are kept
	log   *slog.Logger

	mu sync.RWMutex // held to cut, shared to read
}

// logPartMax is the most that is read at once.
const logPartMax = 512 << 10

// name returns the file of a place's log.
func (l *logs) name(p slots.Place) string {
	if p.Role == cluster.RoleMaster {
		return filepath.Join(l.dir, p.ID, "master.log")
	}
	return filepath.Join(l.dir, p.ID, fmt.Sprintf("worker-%d.log", p.Port))
}

// open opens the log of a place for a process.
func (l *logs) open(p slots.Place) (*os.File, error) {
	path := l.name(p)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// part is a piece of a log: [begin, begin+size) of all that was written.
type part struct {
	path        string
	begin, size int64
}

// pieces returns the parts of a log in order, the file itself last.
func pieces(path string) ([]part, error) {
	var all []part
	for _, name := range list(filepath.Dir(path)) {
		suffix, ok := strings.CutPrefix(name, path+".")
		begin, err := strconv.ParseInt(suffix, 10, 64)
		if !ok || err != nil || begin < 0 {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		all = append(all, part{name, begin, info.Size()})
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(a.begin, b.begin) })
	last := part{path: path}
	if n := len(all); n > 0 {
		last.begin = all[n-1].begin + all[n-1].size
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	last.size = info.Size()
	return append(all, last), nil
}

// read returns a part of a log. Offset below 0 counts from the end; what is not there any
// more is left out, as LogPart.Offset tells.
func (l *logs) read(p slots.Place, offset int64, limit int) (cluster.LogPart, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all, err := pieces(l.name(p))
	if errors.Is(err, fs.ErrNotExist) {
		return cluster.LogPart{}, fmt.Errorf("there is no log of %s here", p)
	}
	if err != nil {
		return cluster.LogPart{}, fmt.Errorf("read the log of %s: %w", p, err)
	}
	end := all[len(all)-1].begin + all[len(all)-1].size
	if offset < 0 {
		offset += end
	}
	if limit <= 0 || limit > logPartMax {
		limit = logPartMax
	}
	offset = min(max(offset, all[0].begin), end)
	reply := cluster.LogPart{Offset: offset, Size: end}
	for _, piece := range all {
		if err := piece.read(&reply, limit); err != nil {
			return cluster.LogPart{}, fmt.Errorf("read the log of %s: %w", p, err)
		}
	}
	return reply, nil
}

// read adds to a reply what it needs next, if that is in the piece.
func (p part) read(reply *cluster.LogPart, limit int) error {
	next := reply.Offset + int64(len(reply.Data))
	n := min(int64(limit-len(reply.Data)), p.begin+p.size-next)
	if next < p.begin || n <= 0 {
		return nil
	}
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, n)
	got, err := f.ReadAt(buf, next-p.begin)
	reply.Data = append(reply.Data, buf[:got]...)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// keep cuts logs that are too large, and removes those of topologies that are not here any
// more when they have not changed since oldest.
func (l *logs) keep(here func(id string) bool, oldest time.Time) {
	for _, dir := range list(l.dir) {
		old := true
		for _, path := range list(dir) {
			info, err := os.Stat(path)
			if err != nil || filepath.Ext(path) != ".log" {
				continue
			}
			old = old && info.ModTime().Before(oldest)
			if info.Size() > l.max {
				if err := l.cut(path, info.Size() > 2*l.max); err != nil {
					l.log.Warn("cannot cut a log", "path", path, "err", err)
				}
			}
		}
		if old && !here(filepath.Base(dir)) {
			if err := os.RemoveAll(dir); err != nil {
				l.log.Warn("cannot remove old logs", "path", dir, "err", err)
			}
		}
	}
}

// cut makes a part out of a log. With force it is emptied even if there is no room for
// the part.
func (l *logs) cut(path string, force bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, err := pieces(path)
	if err != nil {
		return err
	}
	last := all[len(all)-1]
	name := func(begin int64) string { return fmt.Sprintf("%s.%020d", path, begin) }
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	tmp := path + ".part"
	if err := copyAndCut(f, tmp); err == nil {
		err = os.Rename(tmp, name(last.begin))
		if err != nil {
			return errors.Join(err, f.Close())
		}
	} else if !force {
		return errors.Join(err, os.Remove(tmp), f.Close())
	} else {
		l.log.Warn("a part of a log is lost", "path", path, "bytes", last.size, "err", err)
		_ = os.Remove(tmp) // it may not be there
		// An empty part keeps the offsets of what follows.
		empty, err := os.OpenFile(name(last.begin+last.size), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			err = errors.Join(empty.Close(), f.Truncate(0))
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
	}
	for _, piece := range all[:max(len(all)-l.parts, 0)] {
		if err := os.Remove(piece.path); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// copyAndCut copies f, which grows, and empties it as soon as it has all.
func copyAndCut(f *os.File, to string) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, f); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Close(); err != nil {
		return err
	}
	return f.Truncate(0)
}
