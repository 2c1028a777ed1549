package filesink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/isobar-io/isobar/internal/filelock"
	"github.com/isobar-io/isobar/txn"
)

// fence keeps writers of generations that are over away from an output. It is a hidden
// file beside the output that names its owner, and is read and written only under the OS
// lock on it. It stays when the topology ends, because a stopped process may wake up later.
//
// An older writer that is stopped within guard holds the lock, so whoever raises the fence
// waits until it goes on or is killed, and what it did is over before anything newer shows.
// One that is stopped before guard finds another owner.
type fence struct {
	path string
	own  owner
	log  *slog.Logger
	sync func(*os.File) error
}

// owner is who may write. Its encoding in the file is a line of JSON behind its checksum.
type owner struct {
	Version    int            `json:"v"`
	Run        string         `json:"run"`
	Generation txn.Generation `json:"generation"`
}

const (
	fenceVersion = 1
	fenceBytes   = 4096 // more than any fence has
)

// errRemoved: there is no file.
var errRemoved = errors.New("there is no fence")

// newFence returns the fence of the output that has this name in dir.
func newFence(dir, name string, c *txn.Context, sync func(*os.File) error) *fence {
	return &fence{
		path: filepath.Join(dir, "."+name+".fence"),
		own:  owner{fenceVersion, c.RunID, c.Generation},
		log:  c.Logger,
		sync: sync,
	}
}

// raise makes this generation the owner, unless a newer one of the same run is. Another run
// loses the output: whoever comes later has it.
func (f *fence) raise(ctx context.Context) error {
	err := f.locked(ctx, os.O_CREATE, func(file *os.File) error {
		now, err := f.read(file)
		if err != nil {
			return err
		}
		if now.Run == f.own.Run && now.Generation > f.own.Generation {
			return f.lost(now)
		}
		return f.write(file)
	})
	if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(f.path), f.sync)
}

// raiseOther raises the fence of another task, if older generations of this run have it.
func (f *fence) raiseOther(ctx context.Context) error {
	err := f.locked(ctx, 0, func(file *os.File) error {
		now, err := f.read(file)
		if err != nil || now.Run != f.own.Run || now.Generation >= f.own.Generation {
			return err
		}
		return f.write(file)
	})
	if errors.Is(err, errRemoved) {
		return nil
	}
	return err
}

// guard calls effect if this generation is the owner, and lets nobody raise the fence
// meanwhile. An error that another is the owner is fatal: if this generation is over,
// nobody hears of it, and if it is not, the next one raises the fence again.
func (f *fence) guard(ctx context.Context, effect func() error) error {
	err := f.locked(ctx, 0, func(file *os.File) error {
		now, err := f.read(file)
		if err != nil {
			return err
		}
		if now != f.own {
			return txn.Fatal(f.lost(now))
		}
		return effect()
	})
	if errors.Is(err, errRemoved) {
		return txn.Fatal(err)
	}
	return err
}

// lost tells who has the output, although this generation had it or wants it.
func (f *fence) lost(now owner) error {
	switch {
	case now == owner{}:
		return fmt.Errorf("fence %s is empty: generation %d was in it", f.path, f.own.Generation)
	case now.Run != f.own.Run:
		return fmt.Errorf("run %s has taken over from run %s (fence %s): two topologies must not write the same files", now.Run, f.own.Run, f.path)
	case now.Generation < f.own.Generation:
		return fmt.Errorf("fence %s is of generation %d again, %d was in it: an older copy was put in its place", f.path, now.Generation, f.own.Generation)
	}
	return fmt.Errorf("generation %d of run %s has taken over from generation %d (fence %s)", now.Generation, now.Run, f.own.Generation, f.path)
}

// locked calls do with the file of the fence while it is locked.
func (f *fence) locked(ctx context.Context, flag int, do func(*os.File) error) error {
	file, err := os.OpenFile(f.path, os.O_RDWR|flag, 0o666)
	if flag == 0 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w any more, which keeps older writers away: %w", errRemoved, err)
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	err = filelock.Claim(file)
	if errors.Is(err, filelock.ErrLocked) {
		f.log.Warn("the output is locked by another process, which may have been stopped: waiting", "file", f.path)
		err = filelock.Wait(ctx, file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("lock fence %s: %w", f.path, err), file.Close())
	}
	return errors.Join(do(file), file.Close())
}

// read returns who owns the output; nobody if the file was only just created. A file that
// cannot be understood might have kept an older writer away, so it is an error.
func (f *fence) read(file *os.File) (owner, error) {
	var o owner
	data, err := io.ReadAll(io.NewSectionReader(file, 0, fenceBytes))
	if err != nil {
		return o, fmt.Errorf("fence: %w", err)
	}
	if len(data) == 0 {
		return o, nil
	}
	line, _, whole := bytes.Cut(data, []byte("\n"))
	sum, text, _ := bytes.Cut(line, []byte(" "))
	if !whole || string(sum) != checksum(text) {
		return o, f.damaged("its checksum is wrong")
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, f.damaged(err.Error())
	}
	if o.Version != fenceVersion {
		return o, txn.Fatal(fmt.Errorf("fence %s is of version %d, this is version %d", f.path, o.Version, fenceVersion))
	}
	return o, nil
}

func (f *fence) damaged(how string) error {
	return txn.Fatal(fmt.Errorf("fence %s is damaged, %s: it keeps older writers away, so remove it only when no process of the topology is left", f.path, how))
}

// write makes this generation the owner. What is left of a longer line goes last, and does
// no harm if it stays.
func (f *fence) write(file *os.File) error {
	text, err := json.Marshal(f.own)
	if err != nil {
		return err
	}
	line := fmt.Appendf(nil, "%s %s\n", checksum(text), text)
	_, err = file.WriteAt(line, 0)
	if err == nil {
		err = file.Truncate(int64(len(line)))
	}
	if err == nil {
		err = f.sync(file)
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func checksum(text []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) }
