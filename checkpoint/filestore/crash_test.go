package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
)

// fragile is a file system in memory, of which a crash keeps what was made durable and,
// by chance, something of the rest. Each call is a step, at which it may fail, without
// having done anything or after it has done all, or crash.
type fragile struct {
	mem     *vfs.MemFS
	step    int
	faults  map[int]fault
	crashAt int
	keep    vfs.CrashCloneCfg
	left    *vfs.MemFS // what the crash has left
	temps   int
	before  func(step int)         // is called before each step, if set
	lacks   func(name string) bool // of a list, if set
}

type fault int

const (
	failsBefore fault = iota + 1
	failsAfter
)

var (
	errInjected = errors.New("injected")
	errCrashed  = errors.New("crashed")
)

// do takes a step.
func (f *fragile) do(call func() error) error {
	f.step++
	if f.before != nil {
		f.before(f.step)
	}
	if f.left == nil && f.step == f.crashAt {
		f.left = f.mem.CrashClone(f.keep)
	}
	if f.left != nil {
		return errCrashed
	}
	if f.faults[f.step] == failsBefore {
		return errInjected
	}
	err := call()
	if err == nil && f.faults[f.step] == failsAfter {
		err = errInjected
	}
	return err
}

func (f *fragile) open(name string, call func() (vfs.File, error)) (file, error) {
	var opened vfs.File
	err := f.do(func() (err error) {
		opened, err = call()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &fragileFile{f, opened, name}, nil
}

func (f *fragile) Open(path string) (file, error) {
	return f.open(path, func() (vfs.File, error) { return f.mem.Open(path) })
}

func (f *fragile) CreateTemp(dir, prefix string) (file, error) {
	f.temps++
	path := filepath.Join(dir, fmt.Sprintf("%s%p.%d", prefix, f, f.temps))
	return f.open(path, func() (vfs.File, error) { return f.mem.Create(path, vfs.WriteCategoryUnspecified) })
}

func (f *fragile) Rename(oldname, newname string) error {
	return f.do(func() error { return f.mem.Rename(oldname, newname) })
}

func (f *fragile) link(oldname, newname string) error {
	return f.do(func() error { return f.mem.Link(oldname, newname) })
}

func (f *fragile) Remove(path string) error { return f.do(func() error { return f.mem.Remove(path) }) }

func (f *fragile) Stat(path string) (info fs.FileInfo, err error) {
	err = f.do(func() (err error) {
		info, err = f.mem.Stat(path)
		return err
	})
	return info, err
}

func (f *fragile) Lstat(path string) (fs.FileInfo, error) { return f.Stat(path) }

func (f *fragile) Mkdir(dir string) error {
	return f.do(func() error {
		if _, err := f.mem.Stat(dir); err == nil {
			return fs.ErrExist
		}
		if _, err := f.mem.Stat(filepath.Dir(dir)); err != nil {
			return err
		}
		return f.mem.MkdirAll(dir, 0o777)
	})
}

func (f *fragile) ReadDir(dir string) (entries []fs.DirEntry, err error) {
	err = f.do(func() error {
		names, err := f.mem.List(dir)
		slices.Sort(names)
		for _, name := range names {
			if f.lacks != nil && f.lacks(name) {
				continue
			}
			info, statErr := f.mem.Stat(filepath.Join(dir, name))
			err = errors.Join(err, statErr)
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
		return err
	})
	return entries, err
}

func (f *fragile) SyncDir(dir string) error {
	return f.do(func() error {
		d, err := f.mem.OpenDir(dir)
		if err != nil {
			return err
		}
		return errors.Join(d.Sync(), d.Close())
	})
}

func (f *fragile) Lock(string) (func() error, error) {
	return func() error { return nil }, f.do(func() error { return nil })
}

type fragileFile struct {
	f    *fragile
	file vfs.File
	name string
}

func (f *fragileFile) Name() string { return f.name }

func (f *fragileFile) Read(p []byte) (n int, err error) {
	// The end of a file is nothing that fails.
	if stepErr := f.f.do(func() error { n, err = f.file.Read(p); return nil }); stepErr != nil {
		return n, stepErr
	}
	return n, err
}

func (f *fragileFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.f.do(func() (err error) {
		n, err = f.file.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *fragileFile) Write(p []byte) (n int, err error) {
	err = f.f.do(func() (err error) { n, err = f.file.Write(p); return err })
	return n, err
}

func (f *fragileFile) Stat() (fs.FileInfo, error) { return f.file.Stat() }
func (f *fragileFile) Sync() error                { return f.f.do(f.file.Sync) }
func (f *fragileFile) Close() error               { return f.f.do(f.file.Close) }

// openFragile opens the store on a file system.
func openFragile(f *fragile) (*Store, error) {
	return Open("/store", func(s *Store) { s.sys, s.link = f, f.link })
}

// tester is what tests and properties have in common.
type tester interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// opened opens the store, again if that fails. There is none after a crash.
func (f *fragile) opened() *Store {
	for f.left == nil {
		if s, err := openFragile(f); err == nil {
			return s
		}
	}
	return nil
}

// model is what must be, and what may be, after a crash.
type model struct {
	stored map[string]bool // Put has succeeded and Delete was not called since
	maybe  map[string]bool // Put was called
	head   string          // the newest that is known to be there
	heads  []string        // that may be there instead: the outcome was not known
	moves  int
}

var objectNames = []string{"data/1/a", "data/2/deep/c", "data/1/b", "data/2/a", "manifest/1", "manifest/2", "top"}

func contentOf(name string) string { return strings.Repeat("content of "+name, 3) }

func putObject(s *Store, name string) error {
	data := contentOf(name)
	return s.Put(context.Background(), name, strings.NewReader(data), int64(len(data)), checkpoint.CRC([]byte(data)))
}

// act does something and writes down what came of it.
func (m *model) act(t tester, s *Store, op int, name string) {
	ctx := context.Background()
	switch op {
	case 0, 1, 2:
		m.maybe[name] = true
		if putObject(s, name) == nil {
			m.stored[name] = true
		}
	case 3:
		delete(m.stored, name)
		_ = s.Delete(ctx, name)
	case 4:
		for _, err := range s.List(ctx, "") {
			if err != nil {
				break // of a fault; it changes nothing
			}
		}
	default:
		m.moveHead(t, s)
	}
}

// moveHead does what the Head Mover does: after an unknown outcome the head is read again,
// and believed.
func (m *model) moveHead(t tester, s *Store) {
	ctx := context.Background()
	var old checkpoint.Version
	if m.head != "" {
		old = versionOf([]byte(m.head))
	}
	m.moves++
	next := fmt.Sprint("head ", m.moves)
	if _, err := s.SwapHead(ctx, old, []byte(next)); err == nil {
		m.head, m.heads = next, nil
		return
	} else if errors.Is(err, checkpoint.ErrHeadMoved) && len(m.heads) == 0 {
		t.Fatalf("nobody else has moved the head, and: %v", err)
	}
	m.heads = append(m.heads, next)
	if data, _, err := s.ReadHead(ctx); err == nil {
		m.checkHead(t, string(data))
		m.head, m.heads = string(data), nil
	}
}

func (m *model) checkHead(t tester, head string) {
	if head != m.head && !slices.Contains(m.heads, head) {
		t.Fatalf("the head is %q, must be %q or one of %q", head, m.head, m.heads)
	}
}

// check opens what a crash has left.
func (m *model) check(t tester, left *vfs.MemFS) {
	ctx := context.Background()
	s, err := openFragile(&fragile{mem: left})
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := s.ReadHead(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		t.Fatal(err)
	}
	m.checkHead(t, string(data))
	listed := map[string]bool{}
	for o, err := range s.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		listed[o.Name] = true
		body, _, err := s.Open(ctx, o.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err != nil || !m.maybe[o.Name] || string(got) != contentOf(o.Name) {
			t.Fatalf("%s holds %q (%v)", o.Name, got, err)
		}
	}
	for name := range m.stored {
		if !listed[name] {
			t.Fatalf("%s was stored, and there are only %v", name, listed)
		}
	}
	for _, name := range objectNames { // and it goes on
		if err := putObject(s, name); err != nil {
			t.Fatalf("after the crash: %v", err)
		}
	}
}

// TestCrashKeepsWhatWasAcknowledged lets calls fail and the machine crash at any step of
// any sequence of operations. What was acknowledged is there, as a whole, and so is what
// was read of the head; nothing is there in part.
func TestCrashKeepsWhatWasAcknowledged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fragile{
			mem:     vfs.NewCrashableMem(),
			faults:  map[int]fault{},
			crashAt: rapid.IntRange(1, 200).Draw(t, "crash at"),
			keep: vfs.CrashCloneCfg{
				UnsyncedDataPercent: rapid.SampledFrom([]int{0, 0, 50, 100}).Draw(t, "kept"),
				RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)),
			},
		}
		for range rapid.IntRange(0, 6).Draw(t, "faults") {
			f.faults[rapid.IntRange(1, 150).Draw(t, "fault at")] = rapid.SampledFrom([]fault{failsBefore, failsAfter}).Draw(t, "fault")
		}
		m := &model{stored: map[string]bool{}, maybe: map[string]bool{}}
		s := f.opened()
		for f.left == nil {
			m.act(t, s, rapid.IntRange(0, 7).Draw(t, "operation"), rapid.SampledFrom(objectNames).Draw(t, "name"))
			if rapid.IntRange(0, 30).Draw(t, "reopen") == 0 {
				if again, err := openFragile(f); err == nil {
					s = again
				}
			}
		}
		m.check(t, f.left)
	})
}

// TestAnySingleFault fails each call once of a run that stores what a head names, and
// then moves the head. What had to be tried again is durable all the same.
func TestAnySingleFault(t *testing.T) {
	for _, kind := range []fault{failsBefore, failsAfter} {
		for at, reached := 1, true; reached; at++ {
			f := &fragile{mem: vfs.NewCrashableMem(), faults: map[int]fault{at: kind}}
			s := f.opened()
			m := &model{stored: map[string]bool{}, maybe: map[string]bool{}}
			for i, name := range objectNames {
				for !m.stored[name] {
					m.act(t, s, 0, name)
				}
				for before := m.head; i%3 == 0 && m.head == before; {
					m.moveHead(t, s)
				}
			}
			reached = f.step >= at
			m.check(t, f.mem.CrashClone(vfs.CrashCloneCfg{}))
		}
	}
}
