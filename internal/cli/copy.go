package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/internal/parallel"
)

// copied is what a copy has done, as --json prints it.
type copied struct {
	Topology    string   `json:"topology"`
	To          string   `json:"to"`
	RunID       string   `json:"runId"` // of the copy
	Checkpoints []string `json:"checkpoints"`
	Objects     int      `json:"objects"` // that were copied
	Bytes       int64    `json:"bytes"`
	There       int      `json:"there"` // that were there already
	Head        bool     `json:"head"`  // it was written: the copy was not complete before
}

func newCopy() *cobra.Command {
	var name string
	var force, asJSON bool
	var l location
	cmd := &cobra.Command{
		Use:   "copy STORE TO [TOPOLOGY]",
		Short: "Copy checkpoints to another store.",
		Long: "Copy the current checkpoint of each region, or the one of --checkpoint, to another store that\n" +
			"a topology can be started from. Only what is missing there is copied, and verified on the\n" +
			"way; the head is written last. The copy has a run id of its own, so that a run from it does\n" +
			"not touch transactions of the original. TO is like STORE; a folder that is not there yet\n" +
			"becomes a data folder. Nothing may run from it." + storeHelp,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.with(cmd, args[0], optional(args[2:]), func(a *archive) error {
				to, err := l.destination(args[1])
				if err != nil {
					return err
				}
				c, err := a.copyTo(cmd.Context(), to, name, force)
				if err != nil {
					return fmt.Errorf("copy topology %q to %s: %w", a.topology, to, err)
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), c)
				}
				return c.print(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&name, "checkpoint", "", "the `CHECKPOINT` to copy, GENERATION.BATCH or a savepoint; with several regions, of its own")
	cmd.Flags().BoolVar(&force, "force", false, "replace a head that is not an older copy of the same run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	l.addFlags(cmd)
	return cmd
}

// destination is place for a store that may not exist yet.
func (l *location) destination(arg string) (storage.Place, error) {
	if !strings.Contains(arg, "://") && filepath.Base(arg) != "checkpoints" {
		switch entries, err := os.ReadDir(arg); {
		case err == nil && len(entries) == 0, errors.Is(err, fs.ErrNotExist):
			abs, err := filepath.Abs(filepath.Join(arg, "checkpoints"))
			if err != nil {
				return nil, err
			}
			return l.place("file://" + filepath.ToSlash(abs))
		}
	}
	return l.place(arg)
}

// copying is a copy under way.
type copying struct {
	from, to checkpoint.Store
	there    map[string]int64 // objects of the destination, with their sizes
	done     copied
}

// copyWidth is how many objects are copied at a time, each by way of a temporary file.
const copyWidth = 8

func (a *archive) copyTo(ctx context.Context, place storage.Place, name string, force bool) (*copied, error) {
	chosen, err := a.chooseCopies(name)
	if err != nil {
		return nil, err
	}
	to, err := place.Open(ctx, a.topology, nil)
	if err != nil {
		return nil, err
	}
	c := &copying{from: a.store, to: to, there: map[string]int64{}}
	c.done = copied{Topology: a.topology, To: place.String(), RunID: newRunID()}
	err = c.run(ctx, a.head, chosen, force)
	return &c.done, errors.Join(err, to.Close())
}

// chooseCopies returns the current checkpoint of each region, but that of name for its own.
func (a *archive) chooseCopies(name string) ([]entry, error) {
	if name == "" {
		return a.choose("")
	}
	e, err := a.chooseOne(name)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(a.entries(), func(other entry) bool { return other.status != "current" || other.region == e.region })
	return append(chosen, e), nil
}

func newRunID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func (c *copying) run(ctx context.Context, head *checkpoint.Head, chosen []entry, force bool) error {
	var manifests []*checkpoint.Manifest
	for _, e := range chosen {
		m, err := checkpoint.ReadManifest(ctx, c.from, e.ref)
		if err != nil {
			return err
		}
		manifests = append(manifests, m)
		c.done.Checkpoints = append(c.done.Checkpoints, e.ref.String())
	}
	old, version, err := c.oldHead(ctx)
	if err != nil {
		return err
	}
	for o, err := range c.to.List(ctx, "") {
		if err != nil {
			return err
		}
		c.there[o.Name] = o.Size
	}
	if old == nil && len(c.there) > 0 && !force && !onlyPartOf(c.there, manifests, chosen) {
		return errors.New("it has objects of other checkpoints and no head that says which are committed: copy to an empty place, or say --force")
	}
	if old != nil {
		if sameCopy(old, chosen) {
			c.done.RunID = old.RunID
		} else if err := c.mayReplace(ctx, old, head, chosen, manifests); err != nil && !force {
			return fmt.Errorf("%w: copy to an empty place, or say --force", err)
		}
	}
	if err := c.objects(ctx, chosen, manifests); err != nil {
		return err
	}
	if old != nil && sameCopy(old, chosen) {
		return nil
	}
	return c.writeHead(ctx, head, old, version, chosen)
}

// oldHead returns the head of the destination, nil if it has none.
func (c *copying) oldHead(ctx context.Context) (*checkpoint.Head, checkpoint.Version, error) {
	data, version, err := c.to.ReadHead(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	h, err := checkpoint.DecodeHead("head", data)
	return h, version, err
}

// onlyPartOf reports whether all objects are of the checkpoints: an earlier copy of them
// that was interrupted.
func onlyPartOf(there map[string]int64, manifests []*checkpoint.Manifest, chosen []entry) bool {
	known := map[string]bool{}
	for i, m := range manifests {
		known[chosen[i].ref.Manifest] = true
		for name := range filesOf(m) {
			known[name] = true
		}
	}
	for name := range there {
		if !known[name] {
			return false
		}
	}
	return true
}

// sameCopy reports whether a head says already what the copy is to say.
func sameCopy(old *checkpoint.Head, chosen []entry) bool {
	for _, e := range chosen {
		if current := old.Regions[e.region].Current(); current == nil || *current != e.ref {
			return false
		}
	}
	return len(old.Regions) == len(chosen)
}

// mayReplace tells why a head may not be replaced by that of the copy. It may if it is an
// earlier copy of the same run from which nothing has run: the manifests that it names
// are then of the run that they were copied from, and not newer.
func (c *copying) mayReplace(ctx context.Context, old, head *checkpoint.Head, chosen []entry, manifests []*checkpoint.Manifest) error {
	if old.Topology != head.Topology {
		return fmt.Errorf("it holds topology %q", old.Topology)
	}
	for region, r := range old.Regions {
		current := r.Current()
		if current == nil {
			continue
		}
		i := slices.IndexFunc(chosen, func(e entry) bool { return e.region == region })
		if i < 0 {
			return fmt.Errorf("it holds region %q, which the original does not have", region)
		}
		m, err := checkpoint.ReadManifest(ctx, c.to, *current)
		if err != nil {
			return err
		}
		if m.RunID != manifests[i].RunID && m.RunID != head.RunID {
			return fmt.Errorf("its checkpoint %s is of another run than the original", current)
		}
		if newer := chosen[i].ref; current.Generation > newer.Generation || current.Generation == newer.Generation && current.Batch > newer.Batch {
			return fmt.Errorf("its checkpoint %s is newer than %s", current, newer)
		}
	}
	return nil
}

// objects copies what is missing of the checkpoints, their manifests last.
func (c *copying) objects(ctx context.Context, chosen []entry, manifests []*checkpoint.Manifest) error {
	var files, described []checkpoint.FileRef
	for i, m := range manifests {
		for _, t := range m.Tasks {
			files = append(files, t.Files...)
		}
		ref := chosen[i].ref
		described = append(described, checkpoint.FileRef{Name: ref.Manifest, Size: ref.Size, CRC32C: ref.CRC32C})
	}
	files, filesErr := c.missing(files)
	described, describedErr := c.missing(described)
	if err := errors.Join(filesErr, describedErr); err != nil {
		return err
	}
	if err := c.copyAll(ctx, files); err != nil {
		return err
	}
	return c.copyAll(ctx, described)
}

// missing returns the objects that the destination does not have, each once. The error
// names all that it has in another size.
func (c *copying) missing(objects []checkpoint.FileRef) (missing []checkpoint.FileRef, err error) {
	var errs []error
	seen := map[string]bool{} // several tasks may name one
	for _, o := range objects {
		if seen[o.Name] {
			continue
		}
		seen[o.Name] = true
		switch there, ok := c.there[o.Name]; {
		case !ok:
			missing = append(missing, o)
		case there != o.Size:
			errs = append(errs, fmt.Errorf("%w: object %s has %d bytes there and %d in the original", checkpoint.ErrExists, o.Name, there, o.Size))
		default:
			c.done.There++
		}
	}
	return missing, errors.Join(errs...)
}

// copyAll copies objects, several at a time. The error names all that are damaged or
// missing in the original, or the first that could not be copied for another reason,
// which ends it.
func (c *copying) copyAll(ctx context.Context, objects []checkpoint.FileRef) error {
	var errs []error
	for o, err := range parallel.Each(ctx, copyWidth, objects, c.copyObject) {
		if err != nil {
			if errs = append(errs, err); !inspect.Damage(err) {
				break
			}
			continue
		}
		c.there[o.Name] = o.Size
		c.done.Objects++
		c.done.Bytes += o.Size
	}
	if len(errs) == 0 {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// copyObject copies an object by way of a temporary file: it must be verified before any
// of it is stored, and may have to be sent again.
func (c *copying) copyObject(ctx context.Context, o checkpoint.FileRef) (err error) {
	local, err := inspect.Fetch(ctx, c.from, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	return c.to.Put(ctx, o.Name, local.File, o.Size, o.CRC32C)
}

// writeHead makes the copy count. Its generation is above all that either store has seen,
// so that what else is in the destination is what an earlier generation has left there.
func (c *copying) writeHead(ctx context.Context, head, old *checkpoint.Head, version checkpoint.Version, chosen []entry) error {
	h := &checkpoint.Head{Topology: head.Topology, RunID: c.done.RunID, Generation: head.Generation + 1,
		Regions: map[string]checkpoint.RegionHead{}, Writer: operator()}
	if old != nil {
		h.Generation = max(h.Generation, old.Generation+1)
	}
	for name := range c.there {
		if g, ok := checkpoint.NameGeneration(name); ok {
			h.Generation = max(h.Generation, g+1)
		}
	}
	for _, e := range chosen {
		r := checkpoint.RegionHead{Generation: h.Generation, Retained: []checkpoint.Ref{e.ref}}
		if head.Regions[e.region].LeavesBehind(e.ref) {
			r.Unsettled = []string{e.ref.Manifest}
		}
		h.Regions[e.region] = r
	}
	data, err := checkpoint.EncodeHead(h)
	if err != nil {
		return err
	}
	_, err = c.to.SwapHead(ctx, version, data)
	c.done.Head = err == nil
	return err
}

func (c *copied) print(w io.Writer) error {
	p := printer{w: w}
	p.line("Copied checkpoint %s of topology %s to %s", strings.Join(c.Checkpoints, ", "), c.Topology, c.To)
	p.line("%s%d objects, %s; %d were there", indent, c.Objects, bytesOf(c.Bytes), c.There)
	p.line("%srun %s", indent, c.RunID)
	if !c.Head {
		p.line("%sThe copy was complete before.", indent)
	}
	return p.err
}
