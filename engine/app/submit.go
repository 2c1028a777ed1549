package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/plan"
)

// submission is the command line of submit.
type submission struct {
	program string
	out     io.Writer
	access  cluster.StoreAccess
	ask     cluster.Submission
	wait    time.Duration
}

// submit sends the topology to a cluster, under the name that is the first argument.
func submit(program string, build func(*Flags) (*engine.Topology, error), args []string, out, errOut io.Writer) int {
	f := &Flags{rest: args, paths: true}
	named := len(args) > 0 && !strings.HasPrefix(args[0], "-")
	if named {
		f.rest = args[1:]
	}
	s := &submission{program: program, out: out}
	topo, conf, help, err := s.parse(f, build)
	switch {
	case help:
		fmt.Fprint(out, f.help(program, helpSubmit))
		return exitOK
	case err == nil && !named:
		err = errors.New("submit needs the name that the topology is to have, as in: submit NAME")
	}
	if err != nil {
		fmt.Fprintf(errOut, "%s: %v\nRun '%s submit --help' for usage.\n", program, err, program)
		return exitUsage
	}
	s.ask.Name = args[0]
	ctx, release := interruptible(errOut, program)
	defer release()
	if err := s.send(ctx, topo, conf); err != nil {
		fmt.Fprintf(errOut, "%s: submit %s: %v\n", program, s.ask.Name, err)
		return exitFailed
	}
	return exitOK
}

// parse takes the flags, those of the topology among them, and builds it.
func (s *submission) parse(f *Flags, build func(*Flags) (*engine.Topology, error)) (topo *engine.Topology, conf config.Values, help bool, err error) {
	urls := f.String("nats", "", "reach the cluster's coordination store at `URL` (default $"+client.EnvNATS+", or this machine)")
	s.access.Creds = *f.String("creds", "", "prove who you are with a credentials `FILE`")
	s.access.CA = *f.String("ca", "", "trust the authority in a PEM `FILE`")
	s.access.Cert = *f.String("cert", "", "show the certificate in a PEM `FILE`")
	s.access.Key = *f.String("key", "", "the private key of --cert, a PEM `FILE`")
	assignments := f.Strings("c", nil, "set configuration, as in -c topology.workers=2 (`KEY=VALUE`, repeatable)")
	file := f.String("config", "", "read configuration from a YAML `FILE`")
	inactive := f.Bool("inactive", "do not activate it yet")
	update := f.Bool("update", "replace what runs under the name; it goes back by itself if the new one does not commit")
	within := f.Int("update-timeout", 0, "take an update back that has not committed after `N` seconds; 0: after nimbus.update.timeout.secs")
	wait := f.Int("wait", 30, "wait `SECONDS` for it to run; 0: do not")
	start := startFlags(f)
	wantsHelp := f.Bool("help", "show this help")
	if *urls != "" {
		s.access.URLs = strings.Split(*urls, ",")
	}
	f.taken = nil
	topo, err = build(f)
	args := f.taken
	if *wantsHelp {
		return nil, conf, true, nil
	}
	if errs := f.leftOver(); len(errs) > 0 {
		return nil, conf, false, errors.Join(errs...)
	}
	if err != nil {
		return nil, conf, false, fmt.Errorf("build the topology: %w", err)
	}
	from, err := start()
	if err != nil {
		return nil, conf, false, err
	}
	s.ask.Start = cluster.StartSpec{From: from.From, Map: from.Map, Drop: from.Drop, DropUnpublished: from.DropUnpublished, TakeOver: from.TakeOver}
	s.ask.Args, s.ask.Inactive, s.ask.Update, s.ask.UpdateTimeoutSecs = args, *inactive, *update, *within
	s.wait = time.Duration(*wait) * time.Second
	conf, err = config.Read(*file, *assignments)
	return topo, conf, false, err
}

// checkText refuses what would not arrive as it is: on its way to the cluster, and to the
// topology's processes, bytes that are no UTF-8 would be replaced.
func checkText(args []string, conf config.Values) error {
	var errs []error
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			errs = append(errs, fmt.Errorf("flag %q is not UTF-8, so a cluster cannot be given it", arg))
		}
	}
	for name, value := range conf.Set() {
		if text, ok := value.(string); !utf8.ValidString(name) || ok && !utf8.ValidString(text) {
			errs = append(errs, fmt.Errorf("configuration %q: %q is not UTF-8, so a cluster cannot be given it", name, value))
		}
	}
	return errors.Join(errs...)
}

// send checks, uploads and submits.
func (s *submission) send(ctx context.Context, topo *engine.Topology, conf config.Values) error {
	p, own, err := engine.Layout(topo, engine.WithName(s.ask.Name), engine.WithConfig(conf))
	if err != nil {
		return err
	}
	if err := checkText(s.ask.Args, own); err != nil {
		return err
	}
	s.ask.Config = maps.Collect(own.Set())
	s.ask.Components = components(p)
	s.ask.Platform, s.ask.Engine = runtime.GOOS+"/"+runtime.GOARCH, engine.Version
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if s.ask.Binary, err = fingerprint(program); err != nil {
		return err
	}
	c, err := client.Connect(s.access)
	if err != nil {
		return err
	}
	defer c.Close()
	var checked cluster.Checked
	if err := c.Call(ctx, cluster.VerbCheck, s.ask, &checked); err != nil {
		return err
	}
	if n := len(checked.Problems); n > 0 {
		return fmt.Errorf("refused:\n  %s", strings.Join(checked.Problems, "\n  "))
	}
	if s.ask.Start.From == "" && !s.ask.Update {
		if err := s.mustBeNew(ctx, c, own); err != nil {
			return err
		}
	}
	if !checked.HasBinary {
		if err := s.upload(ctx, c, program); err != nil {
			return err
		}
	}
	var done cluster.Submitted
	if err := c.Call(ctx, cluster.VerbSubmit, s.ask, &done); err != nil {
		return err
	}
	for _, w := range append(checked.Warnings, done.Warnings...) {
		fmt.Fprintf(s.out, "note: %s\n", w)
	}
	fmt.Fprintf(s.out, "Finished submitting topology: %s\n", s.ask.Name)
	return s.await(ctx, c, done.ID)
}

// mustBeNew refuses a name that has checkpoints, if the checkpoint store can be seen from
// here. The topology master would refuse it as well, later.
func (s *submission) mustBeNew(ctx context.Context, c *client.Client, own config.Values) error {
	var shared map[string]any
	if err := c.Call(ctx, cluster.VerbConfig, nil, &shared); err != nil {
		return err
	}
	conf, err := storeConfig(shared, own)
	if err != nil || conf.String("checkpoint.store") == "" {
		return err
	}
	place, err := storage.Find(conf, "")
	if err != nil {
		return err
	}
	head, err := newest(ctx, place, s.ask.Name)
	switch {
	case err != nil:
		fmt.Fprintf(s.out, "note: whether %s has checkpoints in %s cannot be told from here: %v\n", s.ask.Name, place, err)
		return nil
	case head != "":
		return fmt.Errorf("it has checkpoints in %s, %s: say what it is to go on from: --from latest, --from empty or --from GENERATION.BATCH", place, head)
	}
	return nil
}

// storeConfig returns where checkpoints are: as the topology says, else as the cluster does.
func storeConfig(shared map[string]any, own config.Values) (config.Values, error) {
	given := map[string]any{}
	for name, v := range shared {
		if strings.HasPrefix(name, "checkpoint.") {
			given[name] = v
		}
	}
	of, err := config.OfJSON("the cluster", given)
	return config.Merge(of, own), err
}

// newest describes the newest checkpoints of a topology, "" if it has none.
func newest(ctx context.Context, place storage.Place, topology string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	names, err := place.Topologies(ctx)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !slices.Contains(names, topology) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	store, err := place.Look(ctx, topology)
	if err != nil {
		return "", err
	}
	defer store.Close()
	data, _, err := store.ReadHead(ctx)
	if err != nil {
		return "", err
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		return "", err
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(h.Regions)) {
		if current := h.Regions[name].Current(); current != nil {
			all = append(all, "the newest is "+current.String())
		}
	}
	return strings.Join(all, ", "), nil
}

// upload puts the program into the cluster's store.
func (s *submission) upload(ctx context.Context, c *client.Client, program string) error {
	f, err := os.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	objects, err := c.Store.Objects(ctx, cluster.ObjectsBinaries)
	if err != nil {
		return fmt.Errorf("upload the program: %w", err)
	}
	fmt.Fprintf(s.out, "Uploading %s (%d MB)\n", program, s.ask.Binary.Size>>20)
	if _, err := objects.Put(ctx, s.ask.Binary.SHA256, f, s.ask.Binary.SHA256, nil); err != nil {
		return fmt.Errorf("upload the program: %w", err)
	}
	return nil
}

// await waits until the topology runs.
func (s *submission) await(ctx context.Context, c *client.Client, id string) error {
	if s.wait == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	last := ""
	for {
		var d cluster.Detail
		err := c.Call(ctx, cluster.VerbStatus, cluster.Named{Name: s.ask.Name}, &d)
		switch run := d.Run; {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("it is submitted, but how it is cannot be told: %w", err)
		case err != nil:
		case d.Topology.ID != id && !s.ask.Update:
			return fmt.Errorf("it is submitted, but %s has taken its place", d.Topology.ID)
		case d.Topology.Status == cluster.Failed:
			return fmt.Errorf("it has failed: %s", d.Topology.Error)
		case d.Topology.Status == cluster.Updating:
			last = "the update is under way"
		case s.ask.Update && d.Topology.Error != "":
			return errors.New(d.Topology.Error)
		case s.ask.Update && d.Topology.Version.Binary != s.ask.Binary:
			return errors.New("it was updated, but by now runs as another program")
		case d.Topology.Status == cluster.Finished, run != nil && run.Epoch == d.Topology.Version.Epoch && run.Phase == cluster.PhaseRunning:
			fmt.Fprintf(s.out, "It runs as %s; see: isobar status %s\n", id, s.ask.Name)
			return nil
		default:
			if last = strings.Join(d.Conditions, "; "); last == "" && run != nil {
				last = run.Error
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			if last != "" {
				last = ": " + last
			}
			fmt.Fprintf(s.out, "It does not run yet%s; see: isobar status %s\n", last, s.ask.Name)
			return nil
		}
	}
}

// components describes a plan to the scheduler.
func components(p *plan.Plan) []cluster.ComponentSpec {
	var all []cluster.ComponentSpec
	for _, c := range p.Components {
		first, n := p.TaskIDs(c.ID)
		spec := cluster.ComponentSpec{ID: c.ID, Spout: c.Role == plan.Spout, FirstTask: first, Tasks: n}
		for _, in := range c.Inputs {
			spec.Inputs = append(spec.Inputs, in.Component)
		}
		all = append(all, spec)
	}
	slices.SortFunc(all, func(a, b cluster.ComponentSpec) int { return cmp.Compare(a.FirstTask, b.FirstTask) })
	return all
}

// fingerprint returns the size and the SHA-256 of a program.
func fingerprint(program string) (cluster.Binary, error) {
	f, err := os.Open(program)
	if err != nil {
		return cluster.Binary{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return cluster.Binary{SHA256: hex.EncodeToString(h.Sum(nil)), Size: n}, err
}
