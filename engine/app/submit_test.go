package app_test

import (
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
)

// A command line of submit that is wrong says so before anything is sent anywhere.
func TestWrongSubmitSendsNothing(t *testing.T) {
	for line, want := range map[string]string{
		"submit":                             "needs the name",
		"submit --n=1":                       "needs the name",
		"submit words --inactiv":             "unknown flag --inactiv, did you mean --inactive?",
		"submit words --from 3":              "must be latest, empty, or checkpoints",
		"submit words -c topology.worker=2":  "did you mean topology.workers?",
		"submit words --map a":               "must be OLD=NEW",
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
