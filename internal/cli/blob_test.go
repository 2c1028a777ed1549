package cli

import (
	"context"
	"errors"
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
		if c.json(&put, "blob", "update", "words.txt", file); put.Key != "words.txt" || put.Size != 3 || put.Revision == "" || len(put.SHA256) != 64 {
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
			c.fails(exitFailed, "blob "+line, `blob "k" does not exist: create it first`)
		}
		c.fails(exitFailed, "blob cat k", `blob "k" does not exist`)
		c.prints("No blobs.\n", "blob", "list")
	})
}

// What could not be uploaded is not in the way of another try.
func TestBlobThatCannotBeUploadedIsDeleted(t *testing.T) {
	dir := t.TempDir() // a folder can be opened and not read
	withCluster(t, func(c *testCluster) {
		c.fails(exitFailed, "blob create k "+dir, "is a directory")
		c.prints("No blobs.\n", "blob", "list")
		objects, err := c.machine.Objects(context.Background(), cluster.ObjectsBlobs)
		c.must(err)
		if _, err := objects.Info(context.Background(), "k"); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("the object is there: %v", err)
		}
	})
}

func TestDamagedBlobIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	withCluster(t, func(c *testCluster) {
		c.prints("Stored blob k, 7 bytes\n", "blob", "create", "k", file)
		c.server.Damage(cluster.ObjectsBlobs, "k")
		if code, _, errOut := c.call("blob", "cat", "k"); code != exitFailed || !strings.Contains(errOut, `"k"`) {
			t.Errorf("exit code %d, %q", code, errOut)
		}
	})
}
