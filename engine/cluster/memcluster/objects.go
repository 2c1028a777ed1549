package memcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/isobar-io/isobar/engine/cluster"
)

type object struct {
	cluster.Object
	content []byte // never altered
}

// describe returns what users are told of an object.
func (o object) describe() cluster.Object {
	d := o.Object
	d.Meta = maps.Clone(d.Meta)
	return d
}

// Objects implements cluster.Store. There is no need to make a place for objects.
func (c *Store) Objects(ctx context.Context, name string) (cluster.Objects, error) {
	err := c.read(ctx, fmt.Sprintf("open objects %q", name), func() error {
		if c.server.objects[name] == nil {
			c.server.objects[name] = map[string]object{}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &objects{store: c, name: name}, nil
}

type objects struct {
	store *Store
	name  string
}

func (o *objects) attempt(verb, name string) string {
	return fmt.Sprintf("%s object %q of %q", verb, name, o.name)
}

func (o *objects) Put(ctx context.Context, name string, r io.Reader, sum string, meta map[string]string) (cluster.Object, error) {
	attempt := o.attempt("put", name)
	content, err := io.ReadAll(r)
	if err != nil {
		return cluster.Object{}, fmt.Errorf("%s: read the content: %w", attempt, err)
	}
	is := sha256.Sum256(content)
	stored := object{content: content, Object: cluster.Object{
		Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(is[:]), Meta: maps.Clone(meta),
	}}
	if sum != "" && sum != stored.SHA256 {
		return cluster.Object{}, fmt.Errorf("%s: its SHA-256 is %s, not %s", attempt, stored.SHA256, sum)
	}
	err = o.store.write(ctx, attempt, func() error {
		all := o.store.server.objects[o.name]
		if all == nil {
			return fmt.Errorf("its place: %w", cluster.ErrNotFound)
		}
		o.store.server.puts++
		stored.Revision = strconv.FormatUint(o.store.server.puts, 10)
		all[name] = stored
		return nil
	})
	if err != nil {
		return cluster.Object{}, err
	}
	return stored.describe(), nil
}

// find returns an object; it is called with the mutex held.
func (o *objects) find(name string) (object, error) {
	found, ok := o.store.server.objects[o.name][name]
	if !ok {
		return object{}, cluster.ErrNotFound
	}
	return found, nil
}

func (o *objects) Info(ctx context.Context, name string) (cluster.Object, error) {
	var found object
	err := o.store.read(ctx, o.attempt("look up", name), func() (err error) {
		found, err = o.find(name)
		return err
	})
	return found.describe(), err
}

func (o *objects) SetMeta(ctx context.Context, name string, meta map[string]string) error {
	return o.store.write(ctx, o.attempt("describe", name), func() error {
		found, err := o.find(name)
		if err != nil {
			return err
		}
		found.Meta = maps.Clone(meta)
		o.store.server.objects[o.name][name] = found
		return nil
	})
}

// Delete returns cluster.ErrNotFound if there is no such object.
func (o *objects) Delete(ctx context.Context, name string) error {
	return o.store.write(ctx, o.attempt("delete", name), func() error {
		if _, err := o.find(name); err != nil {
			return err
		}
		delete(o.store.server.objects[o.name], name)
		return nil
	})
}

// List returns the objects in the order of their names.
func (o *objects) List(ctx context.Context) ([]cluster.Object, error) {
	var list []cluster.Object
	err := o.store.read(ctx, fmt.Sprintf("list objects %q", o.name), func() error {
		all := o.store.server.objects[o.name]
		for _, name := range slices.Sorted(maps.Keys(all)) {
			list = append(list, all[name].describe())
		}
		return nil
	})
	return list, err
}

func (o *objects) Get(ctx context.Context, name string) (io.ReadCloser, cluster.Object, error) {
	c, err := o.get(ctx, name)
	if err != nil {
		return nil, cluster.Object{}, err
	}
	c.sum = sha256.New()
	return c, c.object.describe(), nil
}

func (o *objects) GetFrom(ctx context.Context, name string, offset int64) (io.ReadCloser, cluster.Object, error) {
	c, err := o.get(ctx, name)
	if err == nil && (offset < 0 || offset > c.object.Size) {
		err = fmt.Errorf("%s from byte %d on: it has %d bytes", o.attempt("get", name), offset, c.object.Size)
	}
	if err != nil {
		return nil, cluster.Object{}, err
	}
	c.rest = c.rest[offset:]
	return c, c.object.describe(), nil
}

func (o *objects) get(ctx context.Context, name string) (*content, error) {
	var found object
	attempt := o.attempt("get", name)
	err := o.store.read(ctx, attempt, func() (err error) {
		found, err = o.find(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	available := func() error {
		return o.store.read(ctx, attempt, func() error { return nil })
	}
	return &content{available: available, object: found, rest: found.content}, nil
}

// content reads an object as it was when Get was called.
type content struct {
	available func() error
	object    object
	rest      []byte
	sum       hash.Hash // nil: not all is read
}

func (c *content) Read(p []byte) (int, error) {
	if err := c.available(); err != nil {
		return 0, err
	}
	if len(c.rest) > 0 || len(p) == 0 {
		n := copy(p, c.rest)
		if c.sum != nil {
			c.sum.Write(p[:n])
		}
		c.rest = c.rest[n:]
		return n, nil
	}
	if size := int64(len(c.object.content)); size != c.object.Size {
		return 0, fmt.Errorf("read object %q: it is damaged: it has %d bytes, not %d", c.object.Name, size, c.object.Size)
	}
	if c.sum == nil {
		return 0, io.EOF
	}
	if is := hex.EncodeToString(c.sum.Sum(nil)); is != c.object.SHA256 {
		return 0, fmt.Errorf("read object %q: it is damaged: its SHA-256 is %s, not %s", c.object.Name, is, c.object.SHA256)
	}
	return 0, io.EOF
}

func (c *content) Close() error { return nil }
