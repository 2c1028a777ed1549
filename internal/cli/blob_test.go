package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestBlobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "words.txt")
	content := strings.Repeat("a word\n", 1765)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	withCluster(t, func(c *testCluster) {
		c.prints("No blobs.\n", "blob", "list")
		c.prints("Stored blob words.txt, 12.4 kB\n", "blob", "create", "words.txt", file, "-a", "u:bob:rw,o::r")
		c.fails(exitFailed, "blob create words.txt "+file, `blob "words.txt" exists already: update it`)
		c.prints(content, "blob", "cat", "words.txt")
		c.prints(`
KEY        BYTES    OWNER  CHANGED (UTC)        ACL
words.txt  12.4 kB  ann    2000-01-01 00:00:00  u:bob:rw-, o::r--
`, "blob", "list")
		if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		var put stored
		if c.json(&put, "blob", "update", "words.txt", file); put.Key != "words.txt" || put.Size != 3 || put.SHA256 != hexSum("new") {
			t.Errorf("JSON holds %+v", put)
		}
		c.prints("new", "blob", "cat", "words.txt")
		c.prints("Blob words.txt: u:bob:r, o::---\n", "blob", "set-acl", "words.txt", "u:bob:r", "o::---")
		var all []cluster.BlobInfo
		if c.json(&all, "blob", "list"); len(all) != 1 || !slices.Equal(all[0].ACL, []string{"u:bob:r--", "o::---"}) || all[0].Size != 3 {
			t.Errorf("JSON holds %+v", all)
		}
		for user, may := range map[string]bool{"bob": true, "cy": false} {
			code, out, errOut := c.callAs(c.ctx, user, "blob", "cat", "words.txt")
			if may != (code == exitOK && out == "new") || !may && !strings.Contains(errOut, `may not do this with blob "words.txt"`) {
				t.Errorf("cat by %s: exit code %d, %q, %q", user, code, out, errOut)
			}
			if code, _, errOut := c.callAs(c.ctx, user, "blob", "delete", "words.txt"); code != exitFailed || !strings.Contains(errOut, "may not do this with blob") {
				t.Errorf("delete by %s: exit code %d, %q", user, code, errOut)
			}
		}
		c.prints("Deleted blob words.txt\n", "blob", "delete", "words.txt")
		c.prints("No blobs.\n", "blob", "list")
	})
}

func TestBlobsRefuseWhatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	withCluster(t, func(c *testCluster) {
		c.fails(exitUsage, "blob create a/b "+file, `blob key "a/b": a key is made of`)
		c.fails(exitUsage, "blob create k "+file+" -a bob:r", `access "bob:r": it must be u:USER:rwa`)
		c.fails(exitUsage, "blob set-acl k r", `access "r": it must be`)
		c.fails(exitUsage, "blob set-acl k")
		c.fails(exitUsage, "blob create k")
		c.fails(exitUsage, "blob rename k l")
		c.fails(exitFailed, "blob create k "+file+".none", "no such file")
		for _, line := range []string{"update k " + file, "delete k", "set-acl k o::r"} {
			c.fails(exitFailed, "blob "+line, `blob "k" is not there, none is`)
		}
		c.fails(exitFailed, "blob cat k", `blob "k" is not there, none is`)
		c.prints("No blobs.\n", "blob", "list")
		c.call("blob", "create", "keys", file)
		c.fails(exitFailed, "blob cat k", `blob "k" is not there, did you mean keys?`)
	})
}

func hexSum(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// contents returns the names of what is stored of blobs.
func (c *testCluster) contents() (names []string) {
	c.t.Helper()
	objects, err := c.machine.Objects(context.Background(), cluster.ObjectsBlobs)
	c.must(err)
	all, err := objects.List(context.Background())
	c.must(err)
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

// alter puts another content in the place of one.
func (c *testCluster) alter(name, content string) {
	c.t.Helper()
	objects, err := c.machine.Objects(context.Background(), cluster.ObjectsBlobs)
	c.must(err)
	_, err = objects.Put(context.Background(), name, strings.NewReader(content), "", nil)
	c.must(err)
}

// What cannot be read, or is refused, leaves nothing behind.
func TestBlobThatIsRefusedIsNotUploaded(t *testing.T) {
	dir := t.TempDir() // a folder can be opened and not read
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	withCluster(t, func(c *testCluster) {
		c.fails(exitFailed, "blob create k "+dir, "is a directory")
		c.fails(exitFailed, "blob update k "+file, `blob "k" is not there`)
		c.prints("No blobs.\n", "blob", "list")
		if names := c.contents(); len(names) != 0 {
			t.Errorf("stored: %q", names)
		}
	})
}

// Contents that are the same are stored once, and uploaded once.
func TestSameContentIsStoredOnce(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a": "content", "b": "content", "c": "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	withCluster(t, func(c *testCluster) {
		objects, err := c.machine.Objects(context.Background(), cluster.ObjectsBlobs)
		c.must(err)
		c.prints("Stored blob k, 7 bytes\n", "blob", "create", "k", filepath.Join(dir, "a"))
		first, err := objects.Info(context.Background(), hexSum("content"))
		c.must(err)
		c.prints("Stored blob l, 7 bytes\n", "blob", "create", "l", filepath.Join(dir, "b"))
		c.prints("Stored blob l, 5 bytes\n", "blob", "update", "l", filepath.Join(dir, "c"))
		c.prints("Stored blob l, 7 bytes\n", "blob", "update", "l", filepath.Join(dir, "b"))
		again, err := objects.Info(context.Background(), hexSum("content"))
		c.must(err)
		if names := c.contents(); len(names) != 2 || first.Revision != again.Revision {
			t.Errorf("stored: %q, revisions %s and %s", names, first.Revision, again.Revision)
		}
	})
}

// Nothing is printed of content that is not the blob's, and a good upload makes it good.
func TestAlteredBlobIsNotPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	content := strings.Repeat("0123456789abcde\n", 80<<10) // of several parts
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	altered := "X" + content[1:]
	withCluster(t, func(c *testCluster) {
		c.prints("Stored blob k, 1.3 MB\n", "blob", "create", "k", file)
		for what, alter := range map[string]func(){
			"damaged":  func() { c.server.Damage(cluster.ObjectsBlobs, hexSum(content)) },
			"replaced": func() { c.alter(hexSum(content), altered) },
			"shorter":  func() { c.alter(hexSum(content), content[:len(content)/2]) },
		} {
			c.prints(content, "blob", "cat", "k")
			alter()
			t.Log(what)
			c.fails(exitFailed, "blob cat k", `blob "k"`, "must have 1310720 bytes and "+hexSum(content)+": upload it again")
			c.prints("Stored blob k, 1.3 MB\n", "blob", "update", "k", file)
		}
		c.prints(content, "blob", "cat", "k")
	})
}

// What can be read once only is uploaded as well.
func TestBlobFromStandardInput(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	withCluster(t, func(c *testCluster) {
		root := newBlobCreate(c.dial("ann"))
		root.SetArgs([]string{"k", "-"})
		root.SetIn(strings.NewReader("from a pipe"))
		root.SetOut(t.Output())
		c.must(root.ExecuteContext(context.Background()))
		c.prints("from a pipe", "blob", "cat", "k")
		if left, err := filepath.Glob(filepath.Join(os.TempDir(), "isobar-blob-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	})
}
