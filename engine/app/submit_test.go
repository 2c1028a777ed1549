package app_test

import (
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/txn"
)

// What JSON would change on its way is refused before anything is sent.
func TestSubmitRefusesWhatIsNoText(t *testing.T) {
	build := func(f *app.Flags) (*engine.Topology, error) {
		in := f.Strings("input", nil, "files")
		b := engine.NewTopologyBuilder()
		b.SetSpout("numbers", func() txn.Spout { return &numbers{w: &world{n: 1}} }, 1)
		own, err := config.Of(map[string]any{"user.input": strings.Join(*in, ",")})
		if err != nil {
			return nil, err
		}
		b.SetConfig(own)
		return b.Build()
	}
	run(build, "submit", "words", "--input=café.txt", "--input=caf\xe9.txt").
		want(t, 1, `flag "--input=caf\xe9.txt" is not UTF-8`, `configuration "user.input": "café.txt,caf\xe9.txt" is not UTF-8`)
}

// A command line of submit that is wrong says so before anything is sent anywhere.
func TestWrongSubmitSendsNothing(t *testing.T) {
	for line, want := range map[string]string{
		"submit":                             "needs the name",
		"submit --n=1":                       "needs the name",
		"submit words --inactiv":             "unknown flag --inactiv, did you mean --inactive?",
		"submit words --from 3":              "must be latest, empty, or checkpoints",
		"submit words -c topology.worker=2":  "did you mean topology.workers?",
		"submit words --map a":               "must be OLD=NEW",
		"submit words --map a/n=m":           "COMPONENT/OLD=COMPONENT/NEW",
		"submit words --map a/n=b/n":         "COMPONENT/OLD=COMPONENT/NEW",
		"submit words --map a/n=a/":          "a name is empty",
		"submit words --drop a/":             "must be COMPONENT or COMPONENT/STATE",
		"submit words other":                 `unexpected argument "other"`,
		"submit words --update-timeout soon": "must be an integer",
	} {
		t.Run(line, func(t *testing.T) {
			r := run(func(f *app.Flags) (*engine.Topology, error) {
				f.Int("n", 1, "count")
				return (&world{n: 1}).build(f)
			}, strings.Fields(line)...)
			r.want(t, 2, want, "submit --help")
		})
	}
}
