package filesink_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// runSink gives a sink four tuples.
func runSink(sink txn.Bolt) error {
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout {
		return generator.New(generator.Options{Fields: tuple.Fields{"word", "n"}, Tuples: 4, Emit: func(i uint64, out *txn.Collector) {
			out.Emit2(tuple.String([]string{"a", "b, c"}[i%2]), tuple.Uint64(i))
		}})
	}, 1)
	b.SetBolt("sink", func() txn.Bolt { return sink }, 1).GlobalGrouping("words")
	t, err := b.Build()
	if err != nil {
		return err
	}
	_, err = engine.Run(context.Background(), t, engine.WithName("example"))
	return err
}

// printFiles prints the files of a folder.
func printFiles(dir string) {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		fmt.Println(err)
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), ".") {
			continue // its fence
		}
		data, err := os.ReadFile(name)
		if err != nil {
			fmt.Println(err)
		}
		fmt.Printf("%s:\n%s", filepath.Base(name), strings.ReplaceAll(string(data), "\r\n", "\n"))
	}
}

func example(sink func(dir string) txn.Bolt) {
	dir, err := os.MkdirTemp("", "sink")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := runSink(sink(dir)); err != nil {
		fmt.Println(err)
	}
	printFiles(dir)
}

func ExampleNewLatest() {
	example(func(dir string) txn.Bolt { return filesink.NewLatest(filepath.Join(dir, "words.tsv")) })
	// Output:
	// words.tsv:
	// a	2
	// b, c	3
}

func ExampleNewRolling() {
	example(func(dir string) txn.Bolt {
		return filesink.NewRolling(dir, filesink.RollingOptions{Format: filesink.JSON(), RollBatches: 10})
	})
	// Output:
	// example~sink~0~000001~00000001~001.jsonl:
	// {"word":"a","n":0}
	// {"word":"b, c","n":1}
	// {"word":"a","n":2}
	// {"word":"b, c","n":3}
}

func ExampleCSV() {
	example(func(dir string) txn.Bolt {
		return filesink.NewRolling(dir, filesink.RollingOptions{Format: filesink.CSV(true), RollBytes: 1 << 20})
	})
	// Output:
	// example~sink~0~000001~00000001~001.csv:
	// word,n
	// a,0
	// "b, c",1
	// a,2
	// "b, c",3
}
