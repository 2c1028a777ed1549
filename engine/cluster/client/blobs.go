package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/isobar-io/isobar/engine/cluster"
)

// StoreBlob makes content that of a blob, a new one or one that there is: the content is
// uploaded, unless it is there, before nimbus changes what the blob is. It sets SHA256 and
// Size of the change, and returns it.
func (c *Client) StoreBlob(ctx context.Context, change cluster.BlobChange, update bool, content io.ReadSeeker) (cluster.BlobChange, error) {
	sum := sha256.New()
	size, err := io.Copy(sum, content)
	if err != nil {
		return change, fmt.Errorf("read the content of blob %q: %w", change.Key, err)
	}
	change.SHA256, change.Size = hex.EncodeToString(sum.Sum(nil)), size
	var checked cluster.BlobChecked
	if err := c.Call(ctx, cluster.VerbBlobCheck, cluster.BlobCheck{BlobChange: change, Update: update}, &checked); err != nil {
		return change, err
	}
	if !checked.HasContent {
		if err := c.upload(ctx, change.SHA256, content); err != nil {
			return change, fmt.Errorf("upload the content of blob %q: %w", change.Key, err)
		}
	}
	verb := cluster.VerbBlobCreated
	if update {
		verb = cluster.VerbBlobUpdated
	}
	return change, c.Call(ctx, verb, change, nil)
}

// upload stores content from its beginning on.
func (c *Client) upload(ctx context.Context, sha256 string, content io.ReadSeeker) error {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	objects, err := c.Store.Objects(ctx, cluster.ObjectsBlobs)
	if err == nil {
		_, err = objects.Put(ctx, sha256, content, sha256, nil)
	}
	return err
}

// ReadBlob writes the content of a blob to w. If it fails, what w was given may be anything.
func (c *Client) ReadBlob(ctx context.Context, key string, w io.Writer) error {
	ask := cluster.BlobRead{Key: key}
	sum := sha256.New()
	for {
		var part cluster.BlobPart
		if err := c.Call(ctx, cluster.VerbBlobRead, ask, &part); err != nil {
			return err
		}
		if _, err := io.MultiWriter(sum, w).Write(part.Data); err != nil {
			return err
		}
		ask.Offset, ask.SHA256 = ask.Offset+int64(len(part.Data)), part.SHA256
		if ask.Offset < part.Size && len(part.Data) > 0 {
			continue
		}
		if is := hex.EncodeToString(sum.Sum(nil)); is != part.SHA256 {
			return fmt.Errorf("the content of blob %q is damaged, or was altered: it has %d bytes and the SHA-256 %s, must have %d bytes and %s: upload it again",
				key, ask.Offset, is, part.Size, part.SHA256)
		}
		return nil
	}
}
