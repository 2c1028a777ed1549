package app_test

import (
	"os"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/txn"
)

// With run nobody fetches blobs: their files are there, or nothing begins.
func TestRunNeedsTheFilesOfBlobs(t *testing.T) {
	t.Chdir(t.TempDir())
	w := &world{n: 10}
	build := func(*app.Flags) (*engine.Topology, error) {
		b := engine.NewTopologyBuilder()
		b.SetSpout("numbers", func() txn.Spout { return &numbers{w: w} }, 1)
		own, err := config.Of(map[string]any{config.KeyBlobs: `{"dict":{"localname":"dict.txt"},"rules.zip":{"localname":"rules","uncompress":true}}`})
		if err != nil {
			return nil, err
		}
		b.SetConfig(own)
		return b.Build()
	}
	run(build, "run").want(t, 1, `topology.blobstore.map: blob "dict" as "dict.txt": the working folder has no such file or folder: a cluster would fetch it, here it must be put there before the start`,
		`blob "rules.zip" as "rules"`, "before the start, unpacked")
	if _, err := os.Stat(".isobar"); w.runs != 0 || err == nil {
		t.Errorf("%d spouts were opened; the data folder: %v", w.runs, err)
	}
	if err := os.WriteFile("dict.txt", []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(build, "run").want(t, 1, `blob "rules.zip" as "rules"`)
	run(build, "run", "-c", `topology.blobstore.map={"dict.txt":{}}`).want(t, 0)
	if err := os.Mkdir("rules", 0o700); err != nil {
		t.Fatal(err)
	}
	run(build, "run").want(t, 0)
}

func TestWrongBlobMapIsRefused(t *testing.T) {
	w := &world{n: 10}
	for _, command := range [][]string{{"run"}, {"submit", "words"}} {
		run(w.build, append(command, "-c", `topology.blobstore.map={"dict":{"localname":"a/b"}}`)...).
			want(t, 2, `-c topology.blobstore.map={"dict":{"localname":"a/b"}}: topology.blobstore.map: blob "dict": its localname is "a/b", must be the name of a file`)
	}
	if w.runs != 0 {
		t.Error("it has run")
	}
}
