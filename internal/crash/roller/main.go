// Roller copies the lines of files into files that roll, and kills itself at a named
// step of the commit protocol; see package death.
//
//	CRASH_STEP=ack.before CRASH_OCCURRENCE=3 roller --input 'in/*' --output folder
package main

import (
	"fmt"
	"os"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/internal/crash/death"
	"github.com/isobar-io/isobar/spout/file"
	"github.com/isobar-io/isobar/txn"
)

func main() {
	hook, err := death.FromEnvironment(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "roller:", err)
		os.Exit(2)
	}
	os.Exit(app.Run("roller", build, os.Args[1:], os.Stdout, os.Stderr, engine.WithHook(hook)))
}

func build(f *app.Flags) (*engine.Topology, error) {
	in := f.Strings("input", nil, "copy the lines of the files that match `GLOB`")
	out := f.String("output", "", "write them to files in `FOLDER`")
	batches := f.Int("batches", 0, "put the lines of `N` batches into a file")
	size := f.Int("bytes", 0, "begin a new file after `N` bytes")
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return &lines{Spout: file.NewSpout(*in)} }, 1)
	b.SetBolt("sink", func() txn.Bolt {
		return filesink.NewRolling(*out, filesink.RollingOptions{RollBatches: *batches, RollBytes: int64(*size)})
	}, 2).ShuffleGrouping("lines")
	return b.Build()
}

// lines emits in each batch what one call of the file spout does, so that the number
// of batches, and of steps, does not depend on the speed of the machine.
type lines struct {
	*file.Spout
	full bool
}

func (l *lines) NextTuple(out *txn.Collector) (txn.Status, error) {
	if l.full {
		return txn.Idle, nil
	}
	status, err := l.Spout.NextTuple(out)
	l.full = status == txn.Emitted
	return status, err
}

func (l *lines) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	l.full = false
	return l.Spout.FinishBatch(n)
}
