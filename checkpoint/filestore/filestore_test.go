package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/checkpointtest"
)

func open(t *testing.T, dir string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Store, name, data string) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(data), int64(len(data)), checkpoint.CRC([]byte(data))); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	checkpointtest.RunStore(t, func(t *testing.T) func() checkpoint.Store {
		dir := filepath.Join(t.TempDir(), "made", "by", "open")
		return func() checkpoint.Store { return open(t, dir) }
	})
}

func TestStoreWithoutHardLinks(t *testing.T) {
	for _, refused := range []error{syscall.EPERM, syscall.ENOTSUP, syscall.ENOSYS} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			checkpointtest.RunStore(t, func(t *testing.T) func() checkpoint.Store {
				dir := t.TempDir()
				return func() checkpoint.Store {
					s := open(t, dir)
					s.link = func(o, n string) error { return &os.LinkError{Op: "link", Old: o, New: n, Err: refused} }
					return s
				}
			})
		})
	}
}

func TestALinkThatFailsForAnotherReasonFailsThePut(t *testing.T) {
	s := open(t, t.TempDir())
	s.link = func(o, n string) error { return syscall.ENOSPC }
	if err := s.Put(t.Context(), "data/a", strings.NewReader("x"), 1, checkpoint.CRC([]byte("x"))); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("put: %v", err)
	}
}

// files returns all files below dir, by path relative to it.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLayoutAndNothingTemporaryLeft(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "data/1/a", "x")
	put(t, s, "data/1/a", "x")
	put(t, s, "data/2/b", "x")
	if err := s.Put(t.Context(), "data/1/c", strings.NewReader("x"), 1, 0); err == nil {
		t.Error("a wrong checksum was taken")
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("head")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "data/2/b"); err != nil {
		t.Fatal(err)
	}
	want := []string{"data", "data/1", "data/1/a", "heads", "heads/00000000000000000001"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
	for _, name := range []string{"head", "head.lock", "put.lock", "heads/1", "heads"} {
		if err := s.Put(t.Context(), name, strings.NewReader("x"), 1, checkpoint.CRC([]byte("x"))); err == nil {
			t.Errorf("an object could be called %q", name)
		}
	}
}

func TestOpenRemovesOldTemporaryFilesOnly(t *testing.T) {
	dir := t.TempDir()
	put(t, open(t, dir), "data/1/a", "x")
	for name, age := range map[string]time.Duration{
		"data/1/.tmp~old": 2 * tempAge, "data/1/.tmp~new": tempAge / 2, ".tmp~old": 2 * tempAge, "data/1/a": 2 * tempAge,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(-age); os.Chtimes(path, at, at) != nil {
			t.Fatal("chtimes failed")
		}
	}
	s := open(t, dir)
	want := []string{"data", "data/1", "data/1/.tmp~new", "data/1/a"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
	for o, err := range s.List(t.Context(), "") {
		if err != nil || o.Name != "data/1/a" {
			t.Errorf("listed: %+v, %v", o, err)
		}
	}
}

func TestHookSeesEachStepThatSucceeds(t *testing.T) {
	var steps []string
	s := open(t, t.TempDir(), WithHook(func(step string) { steps = append(steps, step) }))
	put(t, s, "data/1/a", "x")
	put(t, s, "manifest/1", "x")
	put(t, s, "other/1", "x")
	if err := s.Put(t.Context(), "data/bad", strings.NewReader("x"), 1, 0); err == nil {
		t.Error("a wrong checksum was taken")
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("h")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("h")); err == nil {
		t.Error("a stale swap succeeded")
	}
	if err := s.Delete(t.Context(), "data/1/a"); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`sst.store.before sst.store.after manifest.before manifest.after object.before object.after
		sst.store.before head.before head.after head.before delete.before delete.after`)
	if !slices.Equal(steps, want) {
		t.Errorf("steps are %q, want %q", steps, want)
	}
}

// A crash at the worst moments of a put and of a swap leaves nothing half done.
func TestCrashBetweenSteps(t *testing.T) {
	dir := t.TempDir()
	const crash = "crash"
	s := open(t, dir)
	s.link = func(oldname, newname string) error {
		if err := os.Link(oldname, newname); err != nil {
			return err
		}
		panic(crash)
	}
	func() {
		defer func() {
			if r := recover(); r != crash {
				t.Fatalf("recovered %v", r)
			}
		}()
		put(t, s, "data/1/a", "hello")
	}()
	again := open(t, dir)
	put(t, again, "data/1/a", "hello")
	if err := again.Put(t.Context(), "data/1/a", strings.NewReader("other"), 5, checkpoint.CRC([]byte("other"))); !errors.Is(err, checkpoint.ErrExists) {
		t.Errorf("other bytes under the name: %v", err)
	}
}

// lockFolderEnv makes this program the other process of the test below: it locks
// the folder of that name, says so, and holds the lock until its input ends.
const lockFolderEnv = "ISOBAR_TEST_LOCK_FOLDER"

func TestMain(m *testing.M) {
	dir := os.Getenv(lockFolderEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := LockFolder(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestLockFolderExcludesOtherProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), lockFolderEnv+"="+dir)
	out, outErr := child.StdoutPipe()
	_, inErr := child.StdinPipe()
	if err := errors.Join(outErr, inErr); err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("locked\n"))
	if n, err := out.Read(line); err != nil || !bytes.Equal(line[:n], []byte("locked\n")) {
		t.Fatalf("the child says %q, %v", line[:n], err)
	}
	pid := strconv.Itoa(child.Process.Pid)
	if _, err := LockFolder(dir); err == nil || !strings.Contains(err.Error(), "process "+pid) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder locked by process %s: %v", pid, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the child ended well although it was killed")
	}
	release, err := LockFolder(dir)
	if err != nil {
		t.Fatalf("the lock outlived its process: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}

func TestLockFolderExcludesThisProcessToo(t *testing.T) {
	dir := t.TempDir()
	release, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockFolder(dir); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("locked twice: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
