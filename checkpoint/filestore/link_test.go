package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
)

func TestLink(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "data/x", "content")
	to := filepath.Join(t.TempDir(), "link")
	if err := s.Link(t.Context(), "data/x", to); err != nil {
		t.Fatal(err)
	}
	object, err := os.Stat(filepath.Join(s.dir, "data", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if link, err := os.Stat(to); err != nil || !os.SameFile(object, link) || link.Mode() != object.Mode() {
		t.Errorf("the link is %+v, %v; the object is %+v", link, err, object)
	}
	for what, try := range map[string]struct {
		name, path string
		want       error
	}{
		"where something is":  {"data/x", to, fs.ErrExist},
		"no such object":      {"data/y", to + "2", checkpoint.ErrNotFound},
		"in no folder":        {"data/x", filepath.Join(to+"3", "x"), fs.ErrNotExist},
		"to a folder of them": {"data", to + "4", errors.ErrUnsupported},
	} {
		err := s.Link(t.Context(), try.name, try.path)
		if !errors.Is(err, try.want) || errors.Is(err, errors.ErrUnsupported) != errors.Is(try.want, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("head")); err != nil {
		t.Fatal(err)
	}
	if err := s.Link(t.Context(), headsName+"/"+filepath.Base(s.headPath(1)), to+"5"); err == nil {
		t.Error("the head was linked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Link(ctx, "data/x", to+"6"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := s.Delete(t.Context(), "data/x"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(to); err != nil || string(data) != "content" {
		t.Errorf("without the object the link holds %q, %v", data, err)
	}
}

func TestLinkThatCannotBeMade(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "data/x", "content")
	if err := os.Symlink("x", filepath.Join(s.dir, "data", "symbolic")); err != nil {
		t.Fatal(err)
	}
	if err := s.Link(t.Context(), "data/symbolic", filepath.Join(t.TempDir(), "x")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a symbolic link: %v", err)
	}
	for _, refused := range []error{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP} {
		s.link = func(o, n string) error { return &os.LinkError{Op: "link", Old: o, New: n, Err: refused} }
		if err := s.Link(t.Context(), "data/x", filepath.Join(t.TempDir(), "x")); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, refused) {
			t.Errorf("%v: %v", refused, err)
		}
	}
}
