package nimbus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// blob returns the record of a blob for a user who may do something with it.
func (l *leader) blob(user, key string, want cluster.Access) (cluster.BlobRecord, error) {
	if err := cluster.CheckBlobKey(key); err != nil {
		return cluster.BlobRecord{}, err
	}
	b, ok := l.blobs.get(cluster.KeyOfBlob(key))
	if !ok {
		return b, fmt.Errorf("blob %q does not exist: create it first", key)
	}
	return b, l.permissions.AllowBlob(user, want, b)
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

func (l *leader) createBlob(ctx context.Context, user string, c cluster.BlobChange) error {
	acl, err := normalACL(c.ACL)
	if err := errors.Join(cluster.CheckBlobKey(c.Key), err); err != nil {
		return err
	}
	err = l.blobs.create(ctx, cluster.KeyOfBlob(c.Key), cluster.BlobRecord{Key: c.Key, Owner: user, ACL: acl, Changed: wall()})
	if errors.Is(err, cluster.ErrExists) {
		return fmt.Errorf("blob %q exists already: update it", c.Key)
	}
	return l.wrote(err)
}

// updateBlob allows an update of the content. With a list it changes that as well.
func (l *leader) updateBlob(ctx context.Context, user string, c cluster.BlobChange) error {
	b, err := l.blob(user, c.Key, cluster.AccessWrite)
	if err != nil {
		return err
	}
	if c.ACL != nil {
		return l.blobACL(ctx, user, c)
	}
	b.Changed = wall()
	return l.wrote(l.blobs.set(ctx, cluster.KeyOfBlob(c.Key), b))
}

func (l *leader) blobACL(ctx context.Context, user string, c cluster.BlobChange) error {
	b, err := l.blob(user, c.Key, cluster.AccessAdmin)
	if err != nil {
		return err
	}
	if b.ACL, err = normalACL(c.ACL); err != nil {
		return err
	}
	b.Changed = wall()
	return l.wrote(l.blobs.set(ctx, cluster.KeyOfBlob(c.Key), b))
}

// deleteBlob removes a blob that no topology names.
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
	objects, err := l.Store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		return err
	}
	ctx, done, err := l.lease.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := objects.Delete(ctx, c.Key); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return l.wrote(err)
	}
	return l.wrote(l.blobs.remove(ctx, cluster.KeyOfBlob(c.Key)))
}

// blobPart is how much of a blob goes into one reply.
const blobPart = 640 << 10

// readBlob returns a part of the content of a blob, from its store: users have no right to
// read there themselves.
func (l *leader) readBlob(ctx context.Context, user string, r cluster.BlobRead) (part cluster.BlobPart, err error) {
	if _, err := l.blob(user, r.Key, cluster.AccessRead); err != nil {
		return part, err
	}
	objects, err := l.Store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		return part, err
	}
	content, object, err := objects.Get(ctx, r.Key)
	if err != nil {
		return part, fmt.Errorf("read blob %q: %w", r.Key, err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if r.Revision != "" && r.Revision != object.Revision {
		return part, fmt.Errorf("blob %q was replaced while it was read: read it again", r.Key)
	}
	if _, err := io.CopyN(io.Discard, content, r.Offset); err != nil {
		return part, fmt.Errorf("read blob %q from byte %d on: %w", r.Key, r.Offset, err)
	}
	part.Revision, part.Last = object.Revision, object.Size-r.Offset <= blobPart
	if part.Data, err = io.ReadAll(io.LimitReader(content, blobPart)); err != nil {
		return part, fmt.Errorf("read blob %q: %w", r.Key, err)
	}
	return part, nil
}

// listBlobs returns the blobs that a user may read.
func (l *leader) listBlobs(ctx context.Context, user string) ([]cluster.BlobInfo, error) {
	objects, err := l.Store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		return nil, err
	}
	stored, err := objects.List(ctx)
	if err != nil {
		return nil, err
	}
	all := []cluster.BlobInfo{}
	for _, b := range l.blobs.all() {
		if l.permissions.AllowBlob(user, cluster.AccessRead, b) != nil {
			continue
		}
		info := cluster.BlobInfo{Key: b.Key, Owner: b.Owner, ACL: b.ACL, Changed: b.Changed}
		for _, o := range stored {
			if o.Name == b.Key {
				info.Size, info.Revision = o.Size, o.Revision
			}
		}
		all = append(all, info)
	}
	return all, nil
}
