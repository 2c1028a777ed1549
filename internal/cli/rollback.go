package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/isobar-io/isobar/checkpoint"
)

// headPlace is where the head of a topology is changed.
type headPlace interface {
	// rollback makes a kept checkpoint the current one of its region if the head still is
	// what shown says, and returns the new head. drop accepts that what it lists and is not
	// published may be lost.
	rollback(ctx context.Context, to entry, drop bool, shown *checkpoint.Head) (*checkpoint.Head, error)
}

// inStore changes the head in the store itself. Whoever runs the topology is fenced.
type inStore struct{ *archive }

func (s inStore) rollback(ctx context.Context, to entry, drop bool, shown *checkpoint.Head) (after *checkpoint.Head, err error) {
	edit := func(h *checkpoint.Head) ([]checkpoint.Ref, error) {
		if was, is := shown.Regions[to.region].Current(), h.Regions[to.region].Current(); !sameRef(was, is) {
			return nil, fmt.Errorf("the head has moved to %s since: stop the topology, or ask again", refName(is))
		}
		return checkpoint.RollbackEdit(to.ref.Generation, to.ref.Batch, drop)(h)
	}
	err = s.writing(ctx, func(store checkpoint.Store) error {
		_, _, after, err = checkpoint.EditHead(ctx, store, operator(), edit)
		return err
	})
	return after, err
}

// inRun has the run of the topology change the head, which it goes on from.
type inRun struct{ remote }

func (r inRun) rollback(ctx context.Context, to entry, drop bool, _ *checkpoint.Head) (*checkpoint.Head, error) {
	return r.remote.rollback(ctx, to.ref.String(), drop)
}

func sameRef(a, b *checkpoint.Ref) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func refName(ref *checkpoint.Ref) string { return checkpoint.Target{Ref: ref}.String() }

// undone is what a rollback undoes, as --json prints it.
type undone struct {
	Topology     string        `json:"topology"`
	Region       string        `json:"region"`
	From         string        `json:"from"`
	To           string        `json:"to"`
	Checkpoints  []string      `json:"checkpoints"`
	Positions    []moved       `json:"positions"`
	Transactions []transaction `json:"transactions"`
	Unreadable   []string      `json:"unreadable,omitempty"` // checkpoints whose transactions are not known
	Unseen       string        `json:"unseen,omitempty"`     // why none was read
	Done         bool          `json:"done"`
	Generation   uint64        `json:"generation"` // of the head, afterwards

	refs   []checkpoint.Ref
	to     entry
	target *checkpoint.Manifest // of to
}

func newRollback(d dial) *cobra.Command {
	var store, to, address string
	var yes, asJSON, drop bool
	var l location
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "rollback NAME --to CHECKPOINT | --store STORE [TOPOLOGY] --to CHECKPOINT",
		Short: "Go back to an earlier checkpoint.",
		Long: "Make a kept checkpoint the current one of its region, after showing what that undoes. What is\n" +
			"undone is kept as superseded until it is pruned. A topology in a cluster, NAME, goes back and goes\n" +
			"on, and so does one that listens at --address; with --store alone, one that is running is fenced\n" +
			"and ends. Transactions that sinks have published stay published. One that is superseded may list transactions that were not\n" +
			"published when it was undone, and are gone: --drop-unpublished goes there without them." + storeHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case to == "" || store == "" && (len(args) == 0 || address != ""):
				return usageError{errors.New("--to is needed, and the NAME of a topology in a cluster or --store")}
			case store != "" && cmd.Flags().Changed("nats"):
				return usageError{errors.New("--store and --nats: a topology goes back in its cluster or in its store, name one of them")}
			case asJSON && !yes:
				return usageError{errors.New("--json needs --yes")}
			case store == "":
				return r.goBack(cmd, &l, args[0], func(a *archive, where headPlace) error {
					return a.rollback(cmd, where, to, drop, yes, asJSON)
				})
			}
			return l.with(cmd, store, optional(args), func(a *archive) error {
				var where headPlace = inStore{a}
				if address != "" {
					where = inRun{remote(address)}
				}
				return a.rollback(cmd, where, to, drop, yes, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&store, "store", "", "the `STORE` that holds the checkpoints")
	cmd.Flags().StringVar(&to, "to", "", "the `CHECKPOINT` to go back to, GENERATION.BATCH or a savepoint")
	cmd.Flags().StringVar(&address, "address", "", addressHelp)
	cmd.Flags().BoolVar(&drop, "drop-unpublished", false, "accept that what an unsettled checkpoint lists and has not published is lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON; needs --yes")
	l.addFlags(cmd)
	r.addFlags(cmd)
	return cmd
}

func (a *archive) rollback(cmd *cobra.Command, where headPlace, to string, drop, yes, asJSON bool) error {
	u, err := a.undone(cmd.Context(), to)
	if err != nil {
		return err
	}
	if u.target != nil {
		target, err := checkpoint.TargetOf(a.head, u.Region, u.to.ref, u.target, drop)
		if err != nil {
			return err
		}
		drop = target.DropUnpublished
	}
	out := cmd.OutOrStdout()
	if !asJSON {
		if err := u.print(out); err != nil {
			return err
		}
	}
	if !yes {
		file, isFile := cmd.InOrStdin().(*os.File)
		if err := ask(cmd.InOrStdin(), out, isFile && term.IsTerminal(int(file.Fd()))); err != nil {
			return err
		}
	}
	after, err := where.rollback(cmd.Context(), u.to, drop, a.head)
	if err != nil {
		return err
	}
	u.Done, u.Generation = true, uint64(after.Generation)
	switch {
	case asJSON:
		return printJSON(out, u)
	case a.unseen != nil:
		_, err := fmt.Fprintf(out, "Done. The head is of generation %d now.\n", after.Generation)
		return err
	}
	now := &archive{topology: a.topology, place: a.place, store: a.store, head: after}
	lines, err := now.list(cmd)
	fmt.Fprintf(out, "Done.\n\n")
	return errors.Join(printList(out, []*archive{now}, lines), err)
}

// ask asks whether to go on. Without a terminal nobody can answer.
func ask(in io.Reader, out io.Writer, terminal bool) error {
	if !terminal {
		return usageError{errors.New("nobody can be asked without a terminal: say --yes")}
	}
	fmt.Fprint(out, "Go back? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed")
}

// undone finds out what going back would undo.
func (a *archive) undone(ctx context.Context, to string) (*undone, error) {
	e, err := a.chooseOne(to)
	if err != nil {
		return nil, err
	}
	target, err := a.manifest(ctx, e.ref)
	if err != nil && a.unseen == nil {
		return nil, err
	}
	r := a.head.Regions[e.region]
	current := r.Current()
	if current != nil && current.Manifest == e.ref.Manifest {
		return nil, fmt.Errorf("region %q is at %s already: there is nothing to go back from", e.region, refName(current))
	}
	u := &undone{Topology: a.topology, Region: e.region, From: refName(current), To: e.ref.String(), to: e, target: target,
		Checkpoints: []string{}, Positions: []moved{}, Transactions: []transaction{}, refs: r.Retained}
	if a.unseen != nil {
		u.Unseen = a.unseen.Error()
	}
	if i := slices.IndexFunc(r.Retained, func(ref checkpoint.Ref) bool { return ref.Manifest == e.ref.Manifest }); i >= 0 {
		u.refs = r.Retained[i+1:]
	}
	for _, ref := range u.refs {
		u.Checkpoints = append(u.Checkpoints, ref.String())
		m, err := a.manifest(ctx, ref)
		if err != nil { // to go back from what is damaged must be possible
			u.Unreadable = append(u.Unreadable, ref.String())
			continue
		}
		for _, t := range unlisted(m, target) {
			if !slices.ContainsFunc(u.Transactions, t.same) {
				u.Transactions = append(u.Transactions, t)
			}
		}
		if sameRef(&ref, current) {
			u.Positions = movedPositions(m, target)
		}
	}
	return u, nil
}

// same reports whether both are the same transaction, whoever lists it.
func (t transaction) same(u transaction) bool {
	return t.Component == u.Component && t.Generation == u.Generation && t.Batch == u.Batch && slices.Equal(t.Data, u.Data)
}

// positionsShown bounds how many positions are shown of those that go back.
const positionsShown = 5

func (u *undone) print(w io.Writer) error {
	p := printer{w: w}
	p.line("Region %s of topology %s goes back from %s to %s, taken %s UTC.", u.Region, u.Topology, u.From, u.To, moment(u.to.ref.UnixMilli))
	p.line("Undone are:")
	for _, ref := range u.refs {
		p.line("%scheckpoint %s, taken %s UTC", indent, ref, moment(ref.UnixMilli))
	}
	for i, m := range u.Positions {
		if i == positionsShown {
			p.line("%spositions of %d more partitions; --json has all", indent, len(u.Positions)-i)
			break
		}
		p.line("%sposition of %s in %s: from %s back to %s", indent, m.Component, printable([]byte(m.Partition)), position(m.From), position(m.To))
	}
	if len(u.Transactions) > 0 {
		p.line("Published, or about to be, and not undone by this:")
	}
	for _, t := range u.Transactions {
		p.line("%stransaction %d.%d of %s/%d: %s", indent, t.Generation, t.Batch, t.Component, t.Task, handleOf(t.Data))
	}
	switch {
	case u.Unseen != "":
		p.line("Not shown are positions that go back, and transactions, which stay published:")
		for _, line := range wrap(u.Unseen, columns-len(indent)) {
			p.line("%s%s", indent, line)
		}
	case len(u.Unreadable) > 0:
		p.line("Cannot be read, so that what they have published is not known: %s", strings.Join(u.Unreadable, ", "))
	}
	if len(u.Transactions) > 0 || len(u.Unreadable) > 0 {
		p.line("The same goes for transactions of batches whose checkpoints are not kept any more.")
	}
	return p.err
}
