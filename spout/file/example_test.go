package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/isobar-io/isobar/bolt"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/spout/file"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// printLines runs a spout and prints the lines that it emits. It stops after so many,
// or at the end.
func printLines(spout func() txn.Spout, most int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", spout, 1)
	b.SetBolt("print", func() txn.Bolt {
		return bolt.Func(nil, func(t *tuple.Tuple, _ *txn.Collector) error {
			fmt.Println(t.Str(0))
			if most--; most == 0 {
				cancel()
			}
			return nil
		})
	}, 1).GlobalGrouping("lines")
	t, err := b.Build()
	if err != nil {
		return err
	}
	_, err = engine.Run(ctx, t)
	return err
}

func ExampleNewSpout() {
	dir, err := os.MkdirTemp("", "lines")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo\n"), 0o600); err != nil {
		fmt.Println(err)
	}
	glob := filepath.Join(dir, "*.txt")
	if err := printLines(func() txn.Spout { return file.NewSpout([]string{glob}) }, 100); err != nil {
		fmt.Println(err)
	}
	// Output:
	// one
	// two
}

// A spout that follows does not finish: here, the third line stops the topology.
func ExampleWithFollow() {
	dir, err := os.MkdirTemp("", "lines")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "app.log")
	if err := os.WriteFile(log, []byte("one\ntwo\n"), 0o600); err != nil {
		fmt.Println(err)
	}
	go func() {
		err := os.Rename(log, log+".1")
		if err == nil {
			err = os.WriteFile(log, []byte("three\n"), 0o600)
		}
		if err != nil {
			fmt.Println(err)
		}
	}()
	glob := log + "*" // the rotated files, too
	if err := printLines(func() txn.Spout { return file.NewSpout([]string{glob}, file.WithFollow()) }, 3); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// one
	// two
	// three
}
