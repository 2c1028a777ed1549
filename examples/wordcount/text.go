package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/internal/atomicfile"
	"github.com/isobar-io/isobar/internal/kjv"
	"github.com/isobar-io/isobar/spout/file"
	"github.com/isobar-io/isobar/txn"
)

// newLines returns a spout over the files that globs match, or over the bundled text
// if there are none.
func newLines(globs []string, follow bool, data string) txn.Spout {
	var opts []file.Option
	if follow {
		opts = append(opts, file.WithFollow())
	}
	if len(globs) > 0 {
		return file.NewSpout(globs, opts...)
	}
	path := filepath.Join(data, "kjv.txt")
	return &bundled{Spout: file.NewSpout([]string{path}, opts...), path: path}
}

// bundled is a spout over a file that it first writes, if it is not there yet. The
// text is in the public domain. Its partition is named after the text, which is the same
// on every machine, and not after the path.
type bundled struct {
	*file.Spout
	path  string
	inner txn.PartitionID // as the Spout has it
}

const bundledText = txn.PartitionID("kjv")

func (b *bundled) Open(ctx *txn.Context) error {
	_, err := os.Stat(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = atomicfile.Write(b.path, func(w io.Writer) error {
			_, err := io.WriteString(w, kjv.Text)
			return err
		})
	}
	return errors.Join(err, b.Spout.Open(ctx))
}

func (b *bundled) Partitions(ctx context.Context) ([]txn.PartitionID, error) {
	ids, err := b.Spout.Partitions(ctx)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	b.inner = ids[0]
	return []txn.PartitionID{bundledText}, nil
}

func (b *bundled) Seek(_ txn.PartitionID, position []byte) error {
	return b.Spout.Seek(b.inner, position)
}

func (b *bundled) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	moved, err := b.Spout.FinishBatch(n)
	for i := range moved {
		moved[i].Partition = bundledText
	}
	return moved, err
}

// progress shows how far a run is.
func progress(p engine.Progress) string {
	lines, words := p.Components[0].Emitted, p.Components[2].Executed
	return fmt.Sprintf("%s lines, %s words, %s words/s%s", app.Count(lines), app.Count(words),
		app.Count(uint64(float64(words)/p.Elapsed.Seconds())), app.Checkpoints(p))
}

// wordCount is a line of the output.
type wordCount struct {
	word  string
	count int
}

// report prints the most frequent words after all input was counted.
func report(w io.Writer, r engine.Result, output string) {
	if r.Outcome != engine.Completed {
		return
	}
	if r.Committed == 0 {
		fmt.Fprintln(w, "All input is already counted; there is nothing new.")
	}
	counts, err := readCounts(output)
	if err != nil {
		fmt.Fprintln(w, "The counts cannot be read:", err)
		return
	}
	slices.SortStableFunc(counts, func(a, b wordCount) int { return cmp.Compare(b.count, a.count) })
	total := 0
	for _, c := range counts {
		total += c.count
	}
	fmt.Fprintf(w, "%d different words, %d in all; the most frequent:\n", len(counts), total)
	for _, c := range counts[:min(10, len(counts))] {
		fmt.Fprintf(w, "%9d  %s\n", c.count, c.word)
	}
	fmt.Fprintln(w, "All counts are in", output)
}

func readCounts(path string) ([]wordCount, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var counts []wordCount
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return counts, nil
		}
		if err != nil {
			return nil, err
		}
		word, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		counts = append(counts, wordCount{word, n})
	}
}
