package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

const aclHelp = "who may do what, `ACL`: u:USER:rwa for a user, o::r for all others (repeatable; r read, w write, a change the list)"

// stored is a blob that has new content, as --json prints it.
type stored struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func newBlobs(d dial) *cobra.Command {
	blobs := group("blob", "Keep files in a cluster that its topologies find beside them.")
	blobs.AddCommand(newBlobList(d), newBlobCreate(d), newBlobUpdate(d), newBlobCat(d), newBlobDelete(d), newBlobACL(d))
	return blobs
}

func newBlobCreate(d dial) *cobra.Command {
	return newBlobUpload(d, false, "create KEY FILE", "Store a file as a new blob. FILE may be - for standard input.")
}

func newBlobUpdate(d dial) *cobra.Command {
	return newBlobUpload(d, true, "update KEY FILE", "Replace the content of a blob. FILE may be - for standard input.")
}

func newBlobUpload(d dial, update bool, use, short string) *cobra.Command {
	r := reach{dial: d}
	var acl []string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := cluster.ParseBlobACL(acl)
			if err := errors.Join(cluster.CheckBlobKey(args[0]), err); err != nil {
				return usageError{err}
			}
			content, done, err := openContent(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			defer done()
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				is, err := c.StoreBlob(ctx, cluster.BlobChange{Key: args[0], ACL: acl}, update, content)
				if err != nil {
					return err
				}
				return r.say(cmd, stored{is.Key, is.Size, is.SHA256}, "Stored blob %s, %s", is.Key, bytesOf(is.Size))
			})
		},
	}
	cmd.Flags().StringSliceVarP(&acl, "acl", "a", nil, aclHelp)
	r.addFlagsJSON(cmd)
	return cmd
}

// openContent opens a file, or a copy of what can be read once only.
func openContent(in io.Reader, file string) (content *os.File, done func(), err error) {
	from, err := openInput(in, file)
	if err != nil {
		return nil, nil, err
	}
	if f, ok := from.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return f, func() { _ = f.Close() }, nil // it was only read
		}
	}
	defer from.Close()
	spool, done, err := newSpool()
	if err != nil {
		return nil, nil, err
	}
	_, err = io.Copy(spool, from)
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	return spool, done, nil
}

// newSpool returns a file that is gone when it is done.
func newSpool() (spool *os.File, done func(), err error) {
	spool, err = os.CreateTemp("", "isobar-blob-")
	if err != nil {
		return nil, nil, err
	}
	return spool, func() { _, _ = spool.Close(), os.Remove(spool.Name()) }, nil
}

func newBlobCat(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "cat KEY",
		Short: "Print the content of a blob, once all of it was read and is right.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spool, done, err := newSpool()
			if err != nil {
				return err
			}
			defer done()
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.ReadBlob(ctx, args[0], spool); err != nil {
					return err
				}
				if _, err := spool.Seek(0, io.SeekStart); err != nil {
					return err
				}
				_, err := io.Copy(cmd.OutOrStdout(), spool)
				return err
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
