package supervisor

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// short returns a name for a file out of any text.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// blob fetches a blob for a place, with the content that its record names, and returns its
// path. If the record cannot be had it is the version that was used last here.
func (c *cache) blob(ctx context.Context, p slots.Place, b cluster.Blob) (string, error) {
	dir := filepath.Join(c.dir, blobsDir, short(fmt.Sprintf("%t %s", b.Uncompress, b.Key)))
	entry, err := c.blobEntry(ctx, b.Key)
	if err != nil {
		if last := c.lastBlob(dir, b); last != "" {
			c.log.Warn("what a blob is cannot be had: the version that was used last is used", "blob", b.Key, "err", err)
			c.hold(p, last)
			return last, nil
		}
		return "", fmt.Errorf("fetch blob %q: %w", b.Key, err)
	}
	var record cluster.BlobRecord
	if err := json.Unmarshal(entry.Value, &record); err != nil {
		return "", fmt.Errorf("the record of blob %q cannot be read: %w", b.Key, err)
	}
	if err := record.Check(b.Key); err != nil {
		return "", err
	}
	path := filepath.Join(dir, record.SHA256)
	want := content{cluster.ObjectsBlobs, record.SHA256, record.Size}
	c.hold(p, path)
	there := func() bool { return c.isSound(path, want) }
	if b.Uncompress { // it was checked before it was unpacked
		there = func() bool { _, err := os.Lstat(path); return err == nil }
	}
	err = c.once(ctx, path, there, func() error {
		if err := c.fetchBlob(ctx, path, want, b); err != nil {
			return fmt.Errorf("fetch blob %q: %w", b.Key, err)
		}
		return nil
	})
	return path, err
}

// blobEntry returns the record of a blob, which only nimbus may write.
func (c *cache) blobEntry(ctx context.Context, key string) (cluster.Entry, error) {
	records, err := c.store.Bucket(ctx, cluster.BucketBlobs, false)
	if err != nil {
		return cluster.Entry{}, err
	}
	return records.Get(ctx, cluster.KeyOfBlob(key))
}

// lastBlob returns the version of a blob that was used last, or "".
func (c *cache) lastBlob(dir string, b cluster.Blob) string {
	last := newest(dir)
	info, err := os.Stat(last)
	if err != nil || !b.Uncompress && !c.isSound(last, content{sha256: filepath.Base(last), size: info.Size()}) {
		return ""
	}
	return last
}

func (c *cache) fetchBlob(ctx context.Context, path string, want content, b cluster.Blob) error {
	tmp, err := c.fetch(ctx, path, want, 0o400)
	if err != nil {
		return err
	}
	if !b.Uncompress {
		return c.keep(tmp, path)
	}
	defer os.Remove(tmp)
	unpacked := tmp + ".d"
	defer os.RemoveAll(unpacked)
	if err := unpack(tmp, unpacked, c.budget); err != nil {
		return fmt.Errorf("uncompress: %w", err)
	}
	return errors.Join(os.Rename(unpacked, path), syncDir(filepath.Dir(path)))
}

// unpack makes a folder, or a file, out of a zip or tar archive or a gzip file, whatever
// its name. It writes no more than limit bytes, and nothing outside.
func unpack(archive, to string, limit int64) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	left := &io.LimitedReader{N: limit}
	r := bufio.NewReaderSize(f, 64<<10)
	if isZip(r) {
		return unzip(f, to, left)
	}
	if head, _ := r.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		if r = bufio.NewReaderSize(z, 64<<10); !isTar(r) {
			file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
			if err != nil {
				return err
			}
			return errors.Join(pour(file, r, left), file.Sync(), file.Close())
		}
	}
	if !isTar(r) {
		return errors.New("it is no zip, tar or gzip file")
	}
	return untar(r, to, left)
}

func isZip(r *bufio.Reader) bool {
	head, _ := r.Peek(4)
	return bytes.Equal(head, []byte("PK\x03\x04"))
}

func isTar(r *bufio.Reader) bool {
	const magicAt = 257
	head, _ := r.Peek(magicAt + 5)
	return len(head) == magicAt+5 && string(head[magicAt:]) == "ustar"
}

// pour copies r to w as long as there is something left of the limit.
func pour(w io.Writer, r io.Reader, left *io.LimitedReader) error {
	left.R = r
	if _, err := io.Copy(w, left); err != nil {
		return err
	}
	if left.N == 0 {
		return errors.New("its content is larger than the cache")
	}
	return nil
}

func untar(r io.Reader, to string, left *io.LimitedReader) error {
	return inFolder(to, func(root *os.Root) error {
		t := tar.NewReader(r)
		for {
			h, err := t.Next()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case h.Typeflag == tar.TypeDir:
				err = root.MkdirAll(filepath.Clean(h.Name), 0o700)
			case h.Typeflag == tar.TypeReg:
				err = place(root, h.Name, h.FileInfo().Mode(), t, left)
			default:
				err = errors.New("it is neither a file nor a folder")
			}
			if err != nil {
				return fmt.Errorf("%q: %w", h.Name, err)
			}
		}
	})
}

func unzip(f *os.File, to string, left *io.LimitedReader) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, info.Size())
	if err != nil {
		return err
	}
	return inFolder(to, func(root *os.Root) error {
		for _, e := range z.File {
			if err := unzipOne(root, e, left); err != nil {
				return fmt.Errorf("%q: %w", e.Name, err)
			}
		}
		return nil
	})
}

func unzipOne(root *os.Root, e *zip.File, left *io.LimitedReader) error {
	switch {
	case strings.HasSuffix(e.Name, "/"):
		return root.MkdirAll(filepath.Clean(e.Name), 0o700)
	case !e.Mode().IsRegular():
		return errors.New("it is neither a file nor a folder")
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	return place(root, e.Name, e.Mode(), r, left)
}

// inFolder makes a folder and calls f with it. What f opens is in it.
func inFolder(dir string, f func(root *os.Root) error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(f(root), root.Close())
}

// place writes one file of an archive. Whoever may execute it there may here.
func place(root *os.Root, name string, mode fs.FileMode, r io.Reader, left *io.LimitedReader) error {
	name = filepath.Clean(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400|mode&0o100)
	if err != nil {
		return err
	}
	return errors.Join(pour(f, r, left), f.Close())
}

// link makes a blob's path be found under its name in a working folder. A reader sees the
// old version or the new. changed is false if it was there already; old is what was there
// before.
func link(dir string, b cluster.Blob, path string) (old string, changed bool, err error) {
	name := b.LocalName
	if name == "" {
		name = b.Key
	}
	if err := cluster.CheckBlobKey(name); err != nil || strings.HasPrefix(name, own) {
		return "", false, fmt.Errorf("blob %q: it cannot have the local name %q: take letters, digits, '_', '-' and '.'", b.Key, name)
	}
	at := filepath.Join(dir, name)
	info, err := os.Lstat(at)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return "", false, fmt.Errorf("blob %q: there is something else under its local name %q", b.Key, name)
	}
	if old, err = os.Readlink(at); err == nil && old == path {
		return old, false, nil
	}
	tmp := filepath.Join(dir, own+"-link-"+short(name))
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return old, false, err
	}
	if err := os.Symlink(path, tmp); err != nil {
		return old, false, fmt.Errorf("blob %q: %w", b.Key, err)
	}
	return old, true, os.Rename(tmp, at)
}
