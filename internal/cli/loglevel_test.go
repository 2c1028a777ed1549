package cli

import (
	"context"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func (c *testCluster) levels(id string) map[string]cluster.Level {
	c.t.Helper()
	b, err := c.machine.Bucket(context.Background(), cluster.TopologyBucket(id), false)
	c.must(err)
	e, err := b.Get(context.Background(), cluster.KeyIntent)
	c.must(err)
	var intent cluster.Intent
	c.must(json.Unmarshal(e.Value, &intent))
	return intent.LogLevels
}

func TestSetLogLevel(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		now := time.Now().UTC()
		c.prints(`
Log level of ROOT in topology words: warn
Log level of count in topology words: debug until `+moment(now.Add(30*time.Second).UnixMilli())+` UTC
`, "set-log-level", "words", "-l", "count=DEBUG:30", "-l", "ROOT=Warn")
		want := map[string]cluster.Level{"": {Level: "warn"}, "count": {Level: "debug", Until: now.Add(30 * time.Second)}}
		if got := c.levels(a.ID); !maps.Equal(got, want) {
			t.Errorf("the levels are %v, want %v", got, want)
		}
		c.prints("Log level of lines in topology words: info\nLog level of ROOT in topology words: as before\n", "set-log-level", "words", "-r", "ROOT", "-l", "lines=info")
		delete(want, "")
		want["lines"] = cluster.Level{Level: "info"}
		if got := c.levels(a.ID); !maps.Equal(got, want) {
			t.Errorf("the levels are %v, want %v", got, want)
		}
		var done logLevels
		if c.json(&done, "set-log-level", "words", "-l", "=error"); done.Topology != "words" || done.Set[""].Level != "error" || done.Removed == nil {
			t.Errorf("JSON holds %+v", done)
		}
		for _, wrong := range []string{"count", "count=loud", "count=", "count=debug:", "count=debug:0", "count=debug:-1", "count=debug:1:2", "debug"} {
			c.fails(exitUsage, "set-log-level words -l "+wrong, "--level "+wrong+": it must be COMPONENT=LEVEL")
		}
		c.fails(exitFailed, "set-log-level words -l lime=debug -l root=info -r conut", `component "lime" does not exist, did you mean lines?`, `component "root" does not exist`, `component "conut" does not exist, did you mean count?`)
		if got := c.levels(a.ID); len(got) != 3 {
			t.Errorf("what was refused has set %v", got)
		}
		c.fails(exitUsage, "set-log-level words -l =info -l ROOT=warn", "there is a level of ROOT before it")
		c.fails(exitUsage, "set-log-level words", "nothing to change")
		c.fails(exitUsage, "set-log-level")
		c.fails(exitFailed, "set-log-level other -r count", `topology "other" is not there`)
	})
}
