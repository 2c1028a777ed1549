package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/app"
)

// remote is a running topology, at the address that it was told to --listen at.
type remote string

const addressHelp = "the `HOST:PORT` at which the topology listens (its --listen)"

// savepoint takes one, and returns its checkpoints.
func (r remote) savepoint(ctx context.Context, name string) ([]checkpoint.Ref, error) {
	var refs []checkpoint.Ref
	return refs, r.call(ctx, http.MethodPost, "/operate/savepoint", url.Values{"name": {name}}, &refs)
}

// rollback goes back to a checkpoint, and returns the head after it.
func (r remote) rollback(ctx context.Context, to string, dropUnpublished bool) (*checkpoint.Head, error) {
	h, query := new(checkpoint.Head), url.Values{"to": {to}}
	if dropUnpublished {
		query.Set("drop-unpublished", "true")
	}
	return h, r.call(ctx, http.MethodPost, "/operate/rollback", query, h)
}

func (r remote) call(ctx context.Context, method, path string, query url.Values, result any) error {
	u := url.URL{Scheme: "http", Host: string(r), Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return fmt.Errorf("--address %s: %w", r, err)
	}
	req.Header.Set(app.OperatorHeader, "isobar")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no topology answers at %s (is it run with --listen?): %w", r, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", r, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("what listens at %s is no topology of this version", r)
	default:
		return fmt.Errorf("%s", strings.TrimSpace(string(body)))
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(result); err != nil {
		return fmt.Errorf("read the answer of %s: %w", r, err)
	}
	return nil
}

// taken is a checkpoint of a savepoint, as --json prints it: what is known of it.
type taken struct {
	Generation checkpoint.Generation `json:"generation"`
	Batch      checkpoint.BatchID    `json:"batch"`
	Name       string                `json:"name,omitempty"` // of the savepoint
	Manifest   string                `json:"manifest,omitempty"`
	Size       int64                 `json:"size,omitempty"`
	CRC32C     *uint32               `json:"crc32c,omitempty"`
	UnixMilli  int64                 `json:"unixMilli,omitempty"`
	Ended      bool                  `json:"ended,omitempty"`
}

func takenOf(refs []checkpoint.Ref, name string) []taken {
	all := []taken{}
	for _, ref := range refs {
		t := taken{Generation: ref.Generation, Batch: ref.Batch, Name: name, Manifest: ref.Manifest, Size: ref.Size, UnixMilli: ref.UnixMilli, Ended: ref.Ended}
		if ref.Manifest != "" { // without it nothing else is known
			t.CRC32C = &ref.CRC32C
		}
		all = append(all, t)
	}
	return all
}

func newSavepoint(d dial) *cobra.Command {
	r := reach{dial: d}
	var address, name string
	cmd := &cobra.Command{
		Use:   "savepoint NAME | --address HOST:PORT",
		Short: "Take a checkpoint of a running topology and keep it.",
		Long: "Take a checkpoint of a running topology and keep it, whatever becomes of the others, until\n" +
			"'isobar checkpoint unpin' lets it go. It is done when this returns. The topology is NAME in a\n" +
			"cluster, or one that runs by itself and listens at an address.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var refs []checkpoint.Ref
			var err error
			switch topology := optional(args); {
			case (topology == "") == (address == ""):
				return usageError{errors.New("name a topology in a cluster, or the --address of one that runs by itself")}
			case topology != "":
				refs, err = r.savepoint(cmd, topology, name)
			default:
				refs, err = remote(address).savepoint(cmd.Context(), name)
			}
			if err != nil {
				return err
			}
			if r.asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(takenOf(refs, name))
			}
			for _, ref := range refs {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", ref)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&address, "address", "", addressHelp)
	cmd.Flags().StringVar(&name, "name", "", "a `NAME` for it, which no other savepoint has")
	r.addFlagsJSON(cmd)
	return cmd
}
