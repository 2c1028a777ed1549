package nimbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/config"
)

// blob returns the record of a blob for a user who may do something with it.
func (l *leader) blob(user, key string, want cluster.Access) (cluster.BlobRecord, error) {
	if err := cluster.CheckBlobKey(key); err != nil {
		return cluster.BlobRecord{}, err
	}
	b, ok := l.blobs.get(cluster.KeyOfBlob(key))
	if !ok {
		if err, damaged := l.blobs.damaged[cluster.KeyOfBlob(key)]; damaged {
			return b, fmt.Errorf("blob %q: %w: an admin may create it anew", key, err)
		}
		return b, l.noBlob(user, key)
	}
	return b, l.permissions.AllowBlob(user, want, b)
}

// noBlob is the error for a key that no blob has. It names what the user may see.
func (l *leader) noBlob(user, key string) error {
	var keys []string
	for _, b := range l.listBlobs(user) {
		keys = append(keys, b.Key)
	}
	near := "none is"
	if len(keys) > 0 {
		near = "did you mean " + config.Nearest(key, keys) + "?"
	}
	return fmt.Errorf("blob %q is not there, %s", key, near)
}

// normalACL returns a list in the form in which it is kept.
func normalACL(list []string) ([]string, error) {
	entries, err := cluster.ParseBlobACL(list)
	if err != nil {
		return nil, err
	}
	normal := make([]string, len(entries))
	for i, e := range entries {
		normal[i] = e.String()
	}
	return normal, nil
}

// created returns the record of a new blob, for a user who may make it.
func (l *leader) created(user string, c cluster.BlobChange) (cluster.BlobRecord, error) {
	b := cluster.BlobRecord{Key: c.Key, Owner: user, SHA256: c.SHA256, Size: c.Size, Changed: wall()}
	err := l.permissions.Allow(user, cluster.ClassUser, "", cluster.Audience{})
	if err != nil {
		return b, err
	}
	b.ACL, err = normalACL(c.ACL)
	if err := errors.Join(cluster.CheckBlobKey(c.Key), err, checkContent(c)); err != nil {
		return b, err
	}
	if _, there := l.blobs.get(cluster.KeyOfBlob(c.Key)); there {
		return b, fmt.Errorf("blob %q exists already: update it", c.Key)
	}
	if err, damaged := l.blobs.damaged[cluster.KeyOfBlob(c.Key)]; damaged && !l.permissions.Admin(user) {
		return b, fmt.Errorf("blob %q: %w: an admin may create it anew", c.Key, err)
	}
	return b, nil
}

// updated returns the record of a blob with new content, for a user who may give it that.
// With a list it changes that as well.
func (l *leader) updated(user string, c cluster.BlobChange) (cluster.BlobRecord, error) {
	b, err := l.blob(user, c.Key, cluster.AccessWrite)
	if err != nil {
		return b, err
	}
	if err := checkContent(c); err != nil {
		return b, err
	}
	if c.ACL != nil {
		if b, err = l.listed(user, c); err != nil {
			return b, err
		}
	}
	b.SHA256, b.Size, b.Changed = c.SHA256, c.Size, wall()
	return b, nil
}

// listed returns the record of a blob with another list, for a user who may change that.
func (l *leader) listed(user string, c cluster.BlobChange) (cluster.BlobRecord, error) {
	b, err := l.blob(user, c.Key, cluster.AccessAdmin)
	if err != nil {
		return b, err
	}
	b.ACL, err = normalACL(c.ACL)
	b.Changed = wall()
	return b, err
}

func checkContent(c cluster.BlobChange) error {
	if err := cluster.CheckContent(c.SHA256, c.Size); err != nil {
		return fmt.Errorf("blob %q: %w", c.Key, err)
	}
	return nil
}

func (l *leader) createBlob(ctx context.Context, user string, c cluster.BlobChange) error {
	b, err := l.created(user, c)
	if err != nil {
		return err
	}
	if err := l.uploaded(ctx, b); err != nil {
		return err
	}
	write, key := l.blobs.create, cluster.KeyOfBlob(c.Key)
	if _, damaged := l.blobs.damaged[key]; damaged {
		write = l.blobs.mend
	}
	err = write(ctx, key, b)
	if errors.Is(err, cluster.ErrExists) {
		l.stale = true
		return fmt.Errorf("blob %q exists already: update it", c.Key)
	}
	return l.wrote(err)
}

func (l *leader) updateBlob(ctx context.Context, user string, c cluster.BlobChange) error {
	b, err := l.updated(user, c)
	if err != nil {
		return err
	}
	if err := l.uploaded(ctx, b); err != nil {
		return err
	}
	return l.wrote(l.blobs.set(ctx, cluster.KeyOfBlob(c.Key), b))
}

// uploaded checks that the content of a blob was uploaded as its record says.
func (l *leader) uploaded(ctx context.Context, b cluster.BlobRecord) error {
	objects, err := l.Store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		return err
	}
	o, err := objects.Info(ctx, b.SHA256)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return fmt.Errorf("the content of blob %q, %.12s…, is not in the object store: upload it first", b.Key, b.SHA256)
	case err != nil:
		return fmt.Errorf("looking for the content of blob %q: %w", b.Key, err)
	case o.SHA256 != b.SHA256 || o.Size != b.Size:
		return fmt.Errorf("blob %q: %w", b.Key, altered(b, o))
	}
	return nil
}

// altered is the error of who finds another content than a blob has.
func altered(b cluster.BlobRecord, o cluster.Object) error {
	return fmt.Errorf("its content in the object store has %d bytes and the SHA-256 %s, must have %d bytes and %s: upload it again",
		o.Size, o.SHA256, b.Size, b.SHA256)
}

func (l *leader) blobACL(ctx context.Context, user string, c cluster.BlobChange) error {
	b, err := l.listed(user, c)
	if err != nil {
		return err
	}
	return l.wrote(l.blobs.set(ctx, cluster.KeyOfBlob(c.Key), b))
}

// deleteBlob removes a blob that no topology names. Its content goes when no other blob has
// had it for a while.
func (l *leader) deleteBlob(ctx context.Context, user string, c cluster.BlobChange) error {
	if _, err := l.blob(user, c.Key, cluster.AccessWrite); err != nil {
		return err
	}
	for name, t := range l.topologies.all() {
		for v := range versions(t) {
			if slices.ContainsFunc(v.Blobs, func(b cluster.Blob) bool { return b.Key == c.Key }) {
				return fmt.Errorf("blob %q is used by topology %s: kill that first", c.Key, name)
			}
		}
	}
	return l.wrote(l.blobs.remove(ctx, cluster.KeyOfBlob(c.Key)))
}

// passedBlob checks a request that is about the content of a blob. The content is read apart
// from the leader's loop.
func (l *leader) passedBlob(user string, call cluster.Call) (passing, error) {
	if call.Verb == cluster.VerbBlobRead {
		r, err := read[cluster.BlobRead](call)
		if err != nil {
			return nil, err
		}
		return l.readBlob(user, r)
	}
	c, err := read[cluster.BlobCheck](call)
	if err != nil {
		return nil, err
	}
	return l.checkBlob(user, c)
}

// checkBlob says what speaks against creating or updating a blob.
func (l *leader) checkBlob(user string, c cluster.BlobCheck) (passing, error) {
	judge := l.created
	if c.Update {
		judge = l.updated
	}
	b, err := judge(user, c.BlobChange)
	if err != nil {
		return nil, err
	}
	l.needed(cluster.ObjectsBlobs, b.SHA256)
	return func(ctx context.Context) ([]byte, error) {
		sound, err := isSound(ctx, l.Store, b)
		if err != nil {
			return nil, fmt.Errorf("looking for the content of blob %q: %w", b.Key, err)
		}
		return json.Marshal(cluster.BlobChecked{HasContent: sound})
	}, nil
}

// isSound reports whether the content of a blob is there, and all of it is right.
func isSound(ctx context.Context, store cluster.Store, b cluster.BlobRecord) (bool, error) {
	objects, err := store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		return false, err
	}
	content, o, err := objects.Get(ctx, b.SHA256)
	if err == nil {
		defer content.Close()
		if o.SHA256 != b.SHA256 || o.Size != b.Size {
			return false, nil
		}
		_, err = io.Copy(io.Discard, content) // fails if the object is not as it is described
	}
	if errors.Is(err, cluster.ErrUnavailable) || ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil
}

// blobPart is how much of a blob goes into one reply: whole parts of objects.
const blobPart = 512 << 10

// readBlob returns a part of the content of a blob: users have no right to read the object
// themselves.
func (l *leader) readBlob(user string, r cluster.BlobRead) (passing, error) {
	b, err := l.blob(user, r.Key, cluster.AccessRead)
	if err == nil {
		err = b.Check(r.Key)
	}
	switch {
	case err != nil:
		return nil, err
	case r.SHA256 != "" && r.SHA256 != b.SHA256:
		return nil, fmt.Errorf("blob %q was replaced while it was read: read it again", r.Key)
	}
	return func(ctx context.Context) ([]byte, error) {
		data, err := partOf(ctx, l.Store, b, r.Offset)
		if err != nil {
			return nil, fmt.Errorf("read blob %q from byte %d on: %w", r.Key, r.Offset, err)
		}
		return json.Marshal(cluster.BlobPart{Data: data, SHA256: b.SHA256, Size: b.Size})
	}, nil
}

// partOf returns the part of a blob's content that begins at a byte.
func partOf(ctx context.Context, store cluster.Store, b cluster.BlobRecord, offset int64) ([]byte, error) {
	objects, err := store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		return nil, err
	}
	content, o, err := objects.GetFrom(ctx, b.SHA256, offset)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if o.SHA256 != b.SHA256 || o.Size != b.Size {
		return nil, altered(b, o)
	}
	data := make([]byte, min(blobPart, b.Size-offset))
	_, err = io.ReadFull(content, data)
	return data, err
}

// listBlobs returns the blobs that a user may read.
func (l *leader) listBlobs(user string) []cluster.BlobInfo {
	all := []cluster.BlobInfo{}
	for _, b := range l.blobs.all() {
		if l.permissions.AllowBlob(user, cluster.AccessRead, b) == nil {
			all = append(all, cluster.BlobInfo{Key: b.Key, Size: b.Size, SHA256: b.SHA256, Owner: b.Owner, ACL: b.ACL, Changed: b.Changed})
		}
	}
	return all
}
