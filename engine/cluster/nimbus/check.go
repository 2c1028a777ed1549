package nimbus

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/config"
)

// facts are what a submission is judged by.
type facts struct {
	user        string
	permissions cluster.Permissions
	now         *cluster.Topology // what has the name, nil: nothing
	supervisors []cluster.Supervisor
	binary      *cluster.Object // nil: not uploaded
	blobs       func(key string) (cluster.BlobRecord, bool)
	defaults    map[string]any // what the cluster sets for topologies
	protected   []string
	version     string // of Isobar, here
	slotsMax    int    // workers of a topology, 0: no limit
	tasksMax    int
}

// findings are what speaks against a submission.
type findings struct{ problems, warnings []string }

func (f *findings) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

func (f *findings) warn(format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf(format, args...))
}

// fail adds each of the errors that were joined.
func (f *findings) fail(err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.fail(e)
		}
		return
	}
	f.problem("%v", err)
}

// check returns what a submission is to run as, and all that speaks against it.
func check(s cluster.Submission, is facts) (cluster.Version, findings) {
	var f findings
	f.fail(checkWho(s, is))
	conf, total := totalConfig(&f, s, is)
	v := cluster.Version{
		Binary: s.Binary, Args: s.Args, Config: total, Workers: conf.Int("topology.workers"),
		Components: s.Components, Start: s.Start, Blobs: blobsOf(conf), Platform: s.Platform,
	}
	checkComponents(&f, s.Components)
	checkQuotas(&f, v, is)
	checkSize(&f, v)
	checkProgram(&f, s, is)
	checkStart(&f, s)
	checkStore(&f, conf, is.supervisors)
	checkBlobs(&f, v.Blobs, is)
	if s.Update && is.now != nil {
		f.fail(checkFixed(is.now.Version.Config, total))
	}
	return v, f
}

// checkWho checks the name, and who asks.
func checkWho(s cluster.Submission, is facts) error {
	if err := cluster.CheckName(s.Name); err != nil {
		return err
	}
	switch {
	case !s.Update && is.now != nil && is.now.Status == cluster.Killed:
		return fmt.Errorf("topology %s is there already: it was killed, and its name is free as soon as its processes have ended", s.Name)
	case !s.Update && is.now != nil:
		return fmt.Errorf("topology %s is there already, it is %s: kill it first, or replace it with update", s.Name, is.now.Status)
	case s.Update && is.now == nil:
		return fmt.Errorf("topology %s is not there, so it cannot be updated: submit it", s.Name)
	case s.Update:
		_, err := cluster.Transition(s.Name, is.now.Status, cluster.CommandUpdate)
		return errors.Join(is.permissions.Allow(is.user, cluster.ClassTopology, s.Name, audience(*is.now)), err)
	}
	return nil
}

// audience says who may do what with a topology.
func audience(t cluster.Topology) cluster.Audience {
	a := cluster.Audience{Owner: t.Owner}
	if conf, err := config.OfJSON("", t.Version.Config); err == nil {
		a.Users, a.Readers = conf.List("topology.users"), conf.List("topology.readonly.users")
	}
	return a
}

// totalConfig lays what the topology sets over what the cluster does.
func totalConfig(f *findings, s cluster.Submission, is facts) (config.Values, map[string]any) {
	own, err := config.OfJSON(config.FromTopology, s.Config)
	f.fail(err)
	base, err := config.OfJSON("the cluster's configuration", is.defaults)
	f.fail(err)
	for _, key := range is.protected {
		wanted, set := s.Config[key]
		if !set || err != nil {
			continue
		}
		if given, _ := base.Get(key); wanted != given && fmt.Sprint(wanted) != fmt.Sprint(given) {
			f.problem("%s is %v: no topology may set it, in this cluster it is %v (nimbus.protected.keys)", key, wanted, given)
		}
	}
	conf := config.Merge(base, own)
	total := maps.Collect(conf.Set())
	return conf, total
}

func checkComponents(f *findings, components []cluster.ComponentSpec) {
	spouts := 0
	next := 1
	seen := map[string]bool{}
	for _, c := range components {
		if c.Spout {
			spouts++
		}
		switch {
		case c.ID == "":
			f.problem("a component has an empty id")
		case seen[c.ID]:
			f.problem("component %q is there twice", c.ID)
		case c.Tasks < 1:
			f.problem("component %q has %d tasks, at least 1 is needed", c.ID, c.Tasks)
		case c.FirstTask != next:
			f.problem("component %q begins with task %d, must be %d: tasks are numbered without gaps", c.ID, c.FirstTask, next)
		}
		seen[c.ID] = true
		next = c.FirstTask + max(c.Tasks, 0)
	}
	for _, c := range components {
		for _, in := range c.Inputs {
			if !seen[in] {
				f.problem("component %q reads from %q, which does not exist", c.ID, in)
			}
		}
	}
	if spouts == 0 {
		f.problem("the topology has no spout: nothing would ever be emitted")
	}
}

func tasks(components []cluster.ComponentSpec) (n int) {
	for _, c := range components {
		n += c.Tasks
	}
	return n
}

func checkQuotas(f *findings, v cluster.Version, is facts) {
	if is.slotsMax > 0 && v.Workers > is.slotsMax {
		f.problem("topology.workers is %d: a topology may have %d workers at most (nimbus.slots.perTopology)", v.Workers, is.slotsMax)
	}
	if n := tasks(v.Components); is.tasksMax > 0 && n > is.tasksMax {
		f.problem("the topology has %d tasks: it may have %d at most (nimbus.executors.perTopology)", n, is.tasksMax)
	}
}

// versionBytesMax is how large a version may be: a topology's record holds up to two, and its
// assignment holds one beside all places.
const versionBytesMax = 384 << 10

// checkSize checks that a version fits into the records that will hold it.
func checkSize(f *findings, v cluster.Version) {
	text, err := json.Marshal(v)
	f.fail(err)
	if n := len(text); n > versionBytesMax {
		f.problem("flags, configuration and components have %d bytes, at most %d are allowed: put what is large into a blob, or into a file", n, versionBytesMax)
	}
}

// checkProgram checks the binary against the cluster. That it was uploaded is for
// checkUploaded.
func checkProgram(f *findings, s cluster.Submission, is facts) {
	if len(s.Binary.SHA256) != 64 || strings.Trim(s.Binary.SHA256, "0123456789abcdef") != "" {
		f.problem("the SHA-256 of the program is %q, must be 64 hexadecimal digits in lower case", s.Binary.SHA256)
	}
	if s.Binary.Size <= 0 {
		f.problem("the program has %d bytes: there is nothing to run", s.Binary.Size)
	}
	var platforms []string
	for _, sup := range is.supervisors {
		if !slices.Contains(platforms, sup.OS) {
			platforms = append(platforms, sup.OS)
		}
	}
	slices.Sort(platforms)
	switch {
	case len(platforms) == 0:
		f.warn("no supervisor is alive: the topology waits for one")
	case !slices.Contains(platforms, s.Platform):
		f.problem("the program is for %s, the supervisors are %s: build it with GOOS and GOARCH set", s.Platform, strings.Join(platforms, ", "))
	case len(platforms) > 1:
		f.warn("the program is for %s, so the supervisors of other platforms (%s) cannot run it", s.Platform, strings.Join(platforms, ", "))
	}
	switch {
	case release(s.Engine) != release(is.version):
		f.problem("the program has Isobar %s in it, the cluster is %s: build it with %s", s.Engine, is.version, release(is.version))
	case s.Engine != is.version:
		f.warn("the program has Isobar %s in it, the cluster is %s", s.Engine, is.version)
	}
}

// release returns the major and minor part of a version.
func release(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// checkUploaded checks that the program is there, as the submission says it is.
func checkUploaded(f *findings, s cluster.Submission, is facts) {
	switch {
	case is.binary == nil:
		f.problem("the program %.12s… is not in the object store: upload it first", s.Binary.SHA256)
	case is.binary.SHA256 != s.Binary.SHA256:
		f.problem("the program was uploaded with the SHA-256 %s, the submission says %s: upload it again", is.binary.SHA256, s.Binary.SHA256)
	case is.binary.Size != s.Binary.Size:
		f.problem("the program was uploaded with %d bytes, the submission says %d: upload it again", is.binary.Size, s.Binary.Size)
	}
}

func checkStart(f *findings, s cluster.Submission) {
	from := s.Start.From
	if s.Update {
		if from != "" && from != "latest" {
			f.problem("--from %s: an update goes on from the last checkpoint; roll the topology back before it or after it", from)
		}
		return
	}
	if from == "" || from == "latest" || from == "empty" {
		return
	}
	for name := range strings.SplitSeq(from, ",") {
		if _, _, err := checkpoint.ParseRef(name); err != nil {
			f.problem("--from %s: it must be latest, empty, or checkpoints: %v", from, err)
		}
	}
}

// unshared reports whether checkpoints go to a folder that only one machine has.
func unshared(conf config.Values) bool {
	return conf.Bool("transaction.topology") && strings.HasPrefix(conf.String("checkpoint.store"), "file:") && !conf.Bool("checkpoint.store.shared")
}

// machines returns the machines of supervisors, each once.
func machines(supervisors []cluster.Supervisor) []string {
	var all []string
	for _, s := range supervisors {
		all = append(all, s.Machine)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func checkStore(f *findings, conf config.Values, supervisors []cluster.Supervisor) {
	if !conf.Bool("transaction.topology") {
		return
	}
	store := conf.String("checkpoint.store")
	if store == "" {
		f.problem("checkpoint.store is not set: in a cluster it must be s3://BUCKET/PREFIX, or file:// and a folder")
		return
	}
	if all := machines(supervisors); unshared(conf) && len(all) > 1 {
		f.problem("checkpoint.store is %s, and the cluster has %d machines: a folder of one is not seen by the others. "+
			"Use s3://BUCKET/PREFIX, or set checkpoint.store.shared if it is one folder for all of them", store, len(all))
	}
}

// fixed are keys that belong to the checkpoints: with another value they would not be found,
// or not be readable.
var fixed = []string{"checkpoint.store", "topology.key.groups", "transaction.topology"}

// checkFixed checks that a change of the configuration leaves the checkpoints where they are.
func checkFixed(old, changed map[string]any) error {
	before, err1 := config.OfJSON("", old)
	after, err2 := config.OfJSON("", changed)
	if err1 != nil || err2 != nil {
		return nil // it is a problem of its own
	}
	var errs []error
	for _, key := range fixed {
		a, _ := before.Get(key)
		b, _ := after.Get(key)
		if a != b {
			errs = append(errs, fmt.Errorf("%s cannot be changed from %v to %v while the topology is there: its checkpoints depend on it", key, a, b))
		}
	}
	return errors.Join(errs...)
}

// blobsOf returns the blobs that a configuration names.
func blobsOf(conf config.Values) []cluster.Blob {
	var all []cluster.Blob
	for _, b := range conf.Blobs() {
		all = append(all, cluster.Blob(b))
	}
	return all
}

// checkBlobs checks that blobs are there, for whom they are to be given to.
func checkBlobs(f *findings, blobs []cluster.Blob, is facts) {
	for _, b := range blobs {
		if err := cluster.CheckBlobKey(b.Key); err != nil {
			f.fail(err)
			continue
		}
		record, ok := is.blobs(b.Key)
		if !ok {
			f.problem("blob %q does not exist: create it first", b.Key)
			continue
		}
		f.fail(is.permissions.AllowBlob(is.user, cluster.AccessRead, record))
		f.fail(record.Check(b.Key))
	}
}

// refused is the error of a request with everything that is wrong with it.
func refused(what string, problems []string) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: %s", what, problems[0])
	}
	return errors.New(what + ": " + strconv.Itoa(len(problems)) + " things are wrong:\n- " + strings.Join(problems, "\n- "))
}
