package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

const aclHelp = "who may do what, `ACL`: u:USER:rwa for a user, o::r for all others (repeatable; r read, w write, a change the list)"

// stored is a blob that has new content, as --json prints it.
type stored struct {
	Key      string `json:"key"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Revision string `json:"revision"`
}

func newBlobs(d dial) *cobra.Command {
	blobs := group("blob", "Keep files in a cluster that its topologies find beside them.")
	blobs.AddCommand(newBlobList(d), newBlobCreate(d), newBlobUpdate(d), newBlobCat(d), newBlobDelete(d), newBlobACL(d))
	return blobs
}

func newBlobCreate(d dial) *cobra.Command {
	r := reach{dial: d}
	var acl []string
	cmd := &cobra.Command{
		Use:   "create KEY FILE",
		Short: "Store a file as a new blob. FILE may be - for standard input.",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.upload(cmd, args[0], args[1], acl, func(ctx context.Context, c *client.Client, put func() error) error {
				ask := cluster.BlobChange{Key: args[0], ACL: acl}
				if err := c.Call(ctx, cluster.VerbBlobCreated, ask, nil); err != nil {
					return err
				}
				err := put()
				if err == nil {
					return nil
				}
				// Without its content the blob is of no use, and would be in the way of another try.
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
				defer cancel()
				if undo := c.Call(ctx, cluster.VerbBlobDeleted, cluster.BlobChange{Key: args[0]}, nil); undo != nil {
					return fmt.Errorf("%w; blob %q is there without content: delete it (%w)", err, args[0], undo)
				}
				return err
			})
		},
	}
	cmd.Flags().StringSliceVarP(&acl, "acl", "a", nil, aclHelp)
	r.addFlagsJSON(cmd)
	return cmd
}

// undoTime is how long a blob that could not be uploaded is tried to be deleted.
const undoTime = 10 * time.Second

func newBlobUpdate(d dial) *cobra.Command {
	r := reach{dial: d}
	var acl []string
	cmd := &cobra.Command{
		Use:   "update KEY FILE",
		Short: "Replace the content of a blob. FILE may be - for standard input.",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.upload(cmd, args[0], args[1], acl, func(ctx context.Context, c *client.Client, put func() error) error {
				if err := c.Call(ctx, cluster.VerbBlobUpdated, cluster.BlobChange{Key: args[0], ACL: acl}, nil); err != nil {
					return err
				}
				return put()
			})
		},
	}
	cmd.Flags().StringSliceVarP(&acl, "acl", "a", nil, aclHelp)
	r.addFlagsJSON(cmd)
	return cmd
}

// upload opens a file and has do get permission and put it.
func (r *reach) upload(cmd *cobra.Command, key, file string, acl []string, do func(ctx context.Context, c *client.Client, put func() error) error) error {
	_, err := cluster.ParseBlobACL(acl)
	if err := errors.Join(cluster.CheckBlobKey(key), err); err != nil {
		return usageError{err}
	}
	in, err := openInput(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	defer in.Close()
	return r.with(cmd, func(ctx context.Context, c *client.Client) error {
		var is cluster.Object
		err := do(ctx, c, func() error {
			objects, err := c.Store.Objects(ctx, cluster.ObjectsBlobs)
			if err == nil {
				is, err = objects.Put(ctx, key, in, "", nil)
			}
			return err
		})
		if err != nil {
			return err
		}
		return r.say(cmd, stored{key, is.Size, is.SHA256, is.Revision}, "Stored blob %s, %s", key, bytesOf(is.Size))
	})
}

func newBlobCat(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "cat KEY",
		Short: "Print the content of a blob.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				ask := cluster.BlobRead{Key: args[0]}
				for {
					part, err := request[cluster.BlobPart](ctx, c, cluster.VerbBlobRead, ask)
					if err != nil {
						return err
					}
					if _, err := cmd.OutOrStdout().Write(part.Data); err != nil || part.Last {
						return err
					}
					ask.Offset, ask.Revision = ask.Offset+int64(len(part.Data)), part.Revision
				}
			})
		},
	}
	r.addFlags(cmd)
	return cmd
}

func newBlobDelete(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "delete KEY",
		Short: "Delete a blob that no topology uses.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := cluster.BlobChange{Key: args[0]}
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.Call(ctx, cluster.VerbBlobDeleted, ask, nil); err != nil {
					return err
				}
				return r.say(cmd, ask, "Deleted blob %s", args[0])
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func newBlobACL(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "set-acl KEY ACL...",
		Short: "Say who may do what with a blob, besides its owner.",
		Long: "Say who may do what with a blob, besides its owner, in the place of what was said before. An ACL is\n" +
			"u:USER:rwa for a user or o::r for all others: r is to read, w to write, a to change the list.",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := cluster.BlobChange{Key: args[0], ACL: args[1:]}
			if _, err := cluster.ParseBlobACL(ask.ACL); err != nil {
				return usageError{err}
			}
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.Call(ctx, cluster.VerbBlobACL, ask, nil); err != nil {
					return err
				}
				return r.say(cmd, ask, "Blob %s: %s", args[0], strings.Join(ask.ACL, ", "))
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func newBlobList(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the blobs that you may read.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				all, err := request[[]cluster.BlobInfo](ctx, c, cluster.VerbBlobs, nil)
				if err != nil {
					return err
				}
				slices.SortFunc(all, func(a, b cluster.BlobInfo) int { return strings.Compare(a.Key, b.Key) })
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), all)
				}
				return printBlobs(cmd.OutOrStdout(), all)
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func printBlobs(w io.Writer, all []cluster.BlobInfo) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "No blobs.")
		return err
	}
	t := newTable(w)
	t.row("KEY", "BYTES", "OWNER", "CHANGED (UTC)", "ACL")
	for _, b := range all {
		t.row(clip(b.Key, 2*nameColumns), size(b.Size), clip(b.Owner, nameColumns), moment(b.Changed.UnixMilli()), strings.Join(b.ACL, ", "))
	}
	return t.end()
}
