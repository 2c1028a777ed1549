package filesink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// RollingOptions say what a [Rolling] sink writes and when it begins a new file. If no
// condition is set, each batch makes a file of its own. The conditions are looked at
// when a batch ends, RollBytes also at each tuple; the end of all input completes the
// last file.
type RollingOptions struct {
	// Format is how tuples are written; the zero value means [Lines].
	Format Format
	// RollBatches is how many batches a file holds at most; 0 means any number.
	RollBatches int
	// RollBytes is the size at which a file is complete; 0 means any size.
	RollBytes int64
	// RollAfter is how long after its first tuple a file is complete; 0 means never.
	RollAfter time.Duration
}

// Rolling writes tuples to files, each of them once. See [NewRolling].
type Rolling struct {
	dir    string
	opts   RollingOptions
	now    func() time.Time
	sync   func(*os.File) error
	rename func(from, to string) error
	prefix string // of the names of the task's parts
	name   *regexp.Regexp
	ctx    *txn.Context
	fence  *fence // of this generation

	// Of the task.
	batch  txn.BatchID // that is open
	seq    int         // of the last part; goes up as long as the instance lives
	part   *part       // nil: none is open
	rolled []*part     // complete with the open batch
	handed []*part     // complete with earlier ones and perhaps not closed yet
	ended  bool        // all input has ended
	line   []byte      // scratch

	// Of the committer.
	waiting []committed
	copied  []copiedRef // may still be gone back to
}

// committed are the parts that are complete with a batch.
type committed struct {
	batch txn.BatchID
	parts []partRef
}

// NewRolling returns a bolt that writes each tuple to a file in dir, which it makes if
// need be. A file is there under its name when all it holds is committed, never a part
// of it, and no tuple is in two files or missing, whatever fails when. Its name is
//
//	TOPOLOGY~COMPONENT~TASK~GENERATION~BATCH~NUMBER.SUFFIX
//
// where generation and batch are those in which it was begun; the files of a task sort
// by name in the order in which they were written. Files whose names begin with a dot
// and end in .pending are being written; what is left of them after a crash goes away
// with the next start, but what a kept checkpoint goes on from.
//
// A file with tuples of several batches shows only when it is complete. A restart
// copies what was committed of an incomplete one. A published file belongs to whoever
// reads it, who may remove it; but a topology that goes back to a checkpoint at which the
// file was incomplete needs it.
//
// Several tasks, components and topologies may share a folder, but a topology that
// begins from nothing refuses one that holds files of its name. The number of tasks
// is fixed as long as checkpoints are kept.
//
// The files are fenced: a process of an older generation that was stopped and wakes up
// shows and removes nothing any more. For that a hidden file of each task stays in the
// folder, .TOPOLOGY~COMPONENT~TASK.fence; what is said of the fence at [NewLatest] holds for
// it, too.
func NewRolling(dir string, o RollingOptions) *Rolling {
	if o.RollBatches == 0 && o.RollBytes == 0 && o.RollAfter == 0 {
		o.RollBatches = 1
	}
	if o.Format.append == nil {
		o.Format = Lines()
	}
	return &Rolling{dir: dir, opts: o, now: time.Now, sync: (*os.File).Sync, rename: os.Rename}
}

// Open checks the options and makes the folder.
func (r *Rolling) Open(ctx *txn.Context) error {
	var errs []error
	if r.opts.RollBatches < 0 || r.opts.RollBytes < 0 || r.opts.RollAfter < 0 {
		errs = append(errs, errors.New("a condition to roll is below 0"))
	}
	if strings.ContainsAny(ctx.Topology, "~/\\") {
		errs = append(errs, fmt.Errorf("topology %q has a name that cannot be part of a file name", ctx.Topology))
	}
	if err := errors.Join(errs...); err != nil {
		return txn.Fatal(fmt.Errorf("rolling sink: %w", err))
	}
	dir, err := filepath.Abs(r.dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o777)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(dir), r.sync)
	}
	if err != nil {
		return fmt.Errorf("rolling sink: %w", err)
	}
	r.dir, r.ctx = dir, ctx
	r.prefix = fmt.Sprintf("%s~%s~%d~", ctx.Topology, ctx.Component, ctx.TaskIndex)
	r.name = regexp.MustCompile("^" + regexp.QuoteMeta(r.prefix) + `(\d+)~\d+~\d+\.\w+$`)
	return nil
}

// InitState keeps older generations away, publishes what is committed, discards what is
// not, and goes on with the part that was open.
func (r *Rolling) InitState(handles []txn.Handle) error {
	if len(handles) == 0 {
		return r.begin()
	}
	decoded := make([]handle, len(handles))
	for i, h := range handles {
		var err error
		if decoded[i], err = decodeHandle(h); err != nil {
			return txn.Fatal(fmt.Errorf("rolling sink: %w", err))
		}
	}
	if err := r.raiseFences(decoded); err != nil {
		return err
	}
	ctx := r.ctx.Context()
	for i, d := range decoded {
		for _, ref := range d.Publish {
			path := filepath.Join(r.dir, hidden(ref.Name))
			if err := verifyPart(path, ref, io.Discard); err != nil && !errors.Is(err, os.ErrNotExist) {
				return txn.Fatal(fmt.Errorf("rolling sink: file %s of batch %d: %w", path, handles[i].Batch, err))
			}
		}
		if err := r.publish(ctx, d.Publish); err != nil {
			return err
		}
		r.batch = handles[i].Batch + 1
	}
	last := decoded[len(decoded)-1]
	if err := r.discard(ctx, last); err != nil {
		return err
	}
	r.copied = last.Copied
	return r.resume(last.Open)
}

// begin is InitState for a task that has never committed anything.
func (r *Rolling) begin() error {
	if err := r.refuseForeign(); err != nil { // before their fence is taken from them
		return err
	}
	if err := r.raiseFences(nil); err != nil {
		return err
	}
	if err := r.refuseForeign(); err != nil { // a stopped process may have woken up meanwhile
		return err
	}
	r.batch = 1
	return r.discard(r.ctx.Context(), handle{})
}

// partName matches the name of a part of any task; the first group names the task.
var partName = regexp.MustCompile(`^(.+)~\d+~\d+~\d+\.\w+$`)

// raiseFences makes this generation the only one that may publish parts of the task, and
// those in its handles, which are of another name if the component was renamed.
func (r *Rolling) raiseFences(handles []handle) error {
	ctx, own := r.ctx.Context(), strings.TrimSuffix(r.prefix, "~")
	r.fence = newFence(r.dir, own, r.ctx, r.sync)
	if err := r.fence.raise(ctx); err != nil {
		return fmt.Errorf("rolling sink: %w", err)
	}
	raised := map[string]bool{own: true}
	for _, h := range handles {
		refs := h.Publish
		if h.Open != nil {
			refs = append(slices.Clone(refs), h.Open.partRef)
		}
		for _, ref := range refs {
			m := partName.FindStringSubmatch(ref.Name)
			if m == nil || raised[m[1]] {
				continue
			}
			raised[m[1]] = true
			if err := newFence(r.dir, m[1], r.ctx, r.sync).raiseOther(ctx); err != nil {
				return fmt.Errorf("rolling sink: %w", err)
			}
		}
	}
	return nil
}

// refuseForeign returns an error if files of the task have been published, although
// nothing was ever committed.
func (r *Rolling) refuseForeign() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("rolling sink: %w", err)
	}
	for _, e := range entries {
		if r.name.MatchString(e.Name()) {
			return txn.Fatal(fmt.Errorf("rolling sink: folder %s holds %s of another run, which this one, from its beginning, would write again: use another folder or empty it", r.dir, e.Name()))
		}
	}
	return nil
}

// discard removes the hidden files of the task, but not those that its checkpoint and
// older ones need, nor those of a newer generation.
func (r *Rolling) discard(ctx context.Context, from handle) error {
	err := r.fence.guard(ctx, func() error { return r.removeHidden(from) })
	if err != nil {
		return fmt.Errorf("rolling sink: %w", err)
	}
	return nil
}

func (r *Rolling) removeHidden(from handle) error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(strings.TrimPrefix(e.Name(), "."), pending)
		m := r.name.FindStringSubmatch(name)
		if !ok || m == nil || !strings.HasPrefix(e.Name(), ".") || from.keeps(name) {
			continue
		}
		if gen, err := strconv.ParseUint(m[1], 10, 64); err != nil || txn.Generation(gen) > r.ctx.Generation {
			continue
		}
		if err := r.remove(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rolling) remove(name string) error {
	if err := os.Remove(filepath.Join(r.dir, name)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// resume copies what was committed of an open part to one of this generation. After a
// rollback the part may show already, completed by what has been undone: then a new one
// is begun with the next tuple.
func (r *Rolling) resume(open *openRef) error {
	if open == nil || r.shows(open.partRef) {
		return nil
	}
	p, err := r.create()
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, hidden(open.Name))
	if err := verifyPart(path, open.partRef, p.f); err != nil {
		err = fmt.Errorf("rolling sink: file %s of batch %d, which goes on: %w", path, r.batch-1, err)
		return txn.Fatal(errors.Join(err, p.abandon()))
	}
	p.ref.Bytes, p.ref.CRC32C = open.Bytes, open.CRC32C
	p.batches, p.since = open.Batches, time.UnixMilli(open.Since)
	r.part = p
	r.copied = append(r.copied, copiedRef{open.Name, r.batch - 1})
	return nil
}

// shows reports whether a published file begins with a part.
func (r *Rolling) shows(ref partRef) bool {
	return verifyPart(filepath.Join(r.dir, ref.Name), ref, io.Discard) == nil
}

func (r *Rolling) create() (*part, error) {
	r.seq++
	name := fmt.Sprintf("%s%06d~%08d~%03d%s", r.prefix, r.ctx.Generation, r.batch, r.seq, r.opts.Format.suffix)
	p, err := createPart(r.dir, name, r.now())
	if err != nil {
		return nil, fmt.Errorf("rolling sink: %w", err)
	}
	return p, nil
}

// Execute writes the tuple.
func (r *Rolling) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if r.part == nil {
		p, err := r.create()
		if err != nil {
			return err
		}
		r.part = p
	}
	p, line := r.part, r.line[:0]
	if header := r.opts.Format.header; header != nil && p.stream != t.Stream() {
		p.stream = t.Stream()
		if !p.sameFields(p.stream) {
			return fmt.Errorf("rolling sink: a tuple with fields %q came after some with %q, which are the header of the file", []string(p.stream.Fields), []string(p.fields))
		}
		if p.ref.Bytes == 0 {
			line = header(line, p.stream)
		}
	}
	line, err := r.opts.Format.append(line, t)
	r.line = line
	if err == nil {
		err = p.write(line)
	}
	if err == nil && r.opts.RollBytes > 0 && p.ref.Bytes >= r.opts.RollBytes {
		err = r.roll()
	}
	if err != nil {
		return fmt.Errorf("rolling sink: %w", err)
	}
	return nil
}

// roll completes the open part.
func (r *Rolling) roll() error {
	p := r.part
	r.part = nil
	r.rolled = append(r.rolled, p)
	return p.flush()
}

// InputEnded completes the last part with the last batch.
func (r *Rolling) InputEnded(*txn.Collector) error {
	r.ended = true
	return nil
}

// finished is what FinishBatch leaves to Commit.
type finished struct {
	rolled []*part
	open   *part   // of the task: only to be synced
	ref    openRef // of open
}

// FinishBatch writes what is gathered, and completes the open part if it is time.
func (r *Rolling) FinishBatch(n txn.BatchID, _ *txn.Collector) (any, error) {
	if p := r.part; p != nil {
		p.batches++
		o := r.opts
		due := r.ended || o.RollBatches > 0 && p.batches >= o.RollBatches || o.RollAfter > 0 && r.now().Sub(p.since) >= o.RollAfter
		finish := p.flush
		if due {
			finish = r.roll
		}
		if err := finish(); err != nil {
			return nil, fmt.Errorf("rolling sink: %w", err)
		}
	}
	fin := &finished{rolled: r.rolled, open: r.part}
	if fin.open != nil {
		fin.ref = fin.open.open()
	}
	r.handed = slices.DeleteFunc(append(r.handed, r.rolled...), func(p *part) bool { return p.closed.Load() })
	r.rolled = nil
	r.batch = n + 1
	return fin, nil
}

// Commit makes the parts durable, hidden as they are. An error of a sync is fatal,
// because a second sync need not tell of what the first one has lost.
func (r *Rolling) Commit(_ context.Context, n txn.BatchID, state any) ([]byte, error) {
	fin := state.(*finished)
	h := handle{Version: handleVersion, Copied: r.copied}
	for _, p := range fin.rolled {
		if err := p.seal(r.sync); err != nil {
			return nil, txn.Fatal(fmt.Errorf("rolling sink: %w", err))
		}
		h.Publish = append(h.Publish, p.ref)
	}
	if fin.open != nil {
		if err := r.sync(fin.open.f); err != nil {
			return nil, txn.Fatal(fmt.Errorf("rolling sink: %w", err))
		}
		h.Open = &fin.ref
	}
	if len(h.Publish) > 0 || h.Open != nil {
		if err := syncFolder(r.dir, r.sync); err != nil {
			return nil, txn.Fatal(fmt.Errorf("rolling sink: %w", err))
		}
	}
	if len(h.Publish) > 0 {
		r.waiting = append(r.waiting, committed{n, h.Publish})
	}
	return json.Marshal(h)
}

// AckCommit gives the parts of all batches up to n their names.
func (r *Rolling) AckCommit(ctx context.Context, n, oldest txn.BatchID) error {
	for len(r.waiting) > 0 && r.waiting[0].batch <= n {
		if err := r.publish(ctx, r.waiting[0].parts); err != nil {
			return err
		}
		r.waiting = r.waiting[1:]
	}
	gone := func(c copiedRef) bool { return c.Batch < min(n, oldest) }
	if !slices.ContainsFunc(r.copied, gone) {
		return nil
	}
	err := r.fence.guard(ctx, func() error {
		for _, c := range r.copied {
			if gone(c) {
				if err := r.remove(hidden(c.Name)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rolling sink: %w", err)
	}
	r.copied = slices.DeleteFunc(r.copied, gone)
	return nil
}

func (r *Rolling) publish(ctx context.Context, parts []partRef) error {
	if len(parts) == 0 {
		return nil
	}
	err := r.fence.guard(ctx, func() error {
		for _, ref := range parts {
			if err := publishPart(r.dir, ref, r.rename); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rolling sink: publish: %w", err)
	}
	return syncFolder(r.dir, r.sync)
}

// Rollback gives up what was written since the checkpoint.
func (r *Rolling) Rollback(handles []txn.Handle) error {
	if err := r.Close(); err != nil {
		return err
	}
	r.waiting, r.copied, r.ended = nil, nil, false
	return r.InitState(handles)
}

// Close closes the files that are open.
func (r *Rolling) Close() error {
	var errs []error
	if r.part != nil {
		errs = append(errs, r.part.abandon())
	}
	for _, p := range slices.Concat(r.handed, r.rolled) {
		errs = append(errs, p.abandon())
	}
	r.part, r.handed, r.rolled = nil, nil, nil
	return errors.Join(errs...)
}
