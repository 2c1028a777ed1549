package daemonconf

import (
	"maps"
	"strings"

	"github.com/isobar-io/isobar/engine/config"
)

// Prefix begins the environment variables of the configuration.
const Prefix = "ISOBAR"

// others are variables with the prefix that are no configuration: those of topology
// processes, of the commands of users, and of the tools of the project.
var others = []string{"ISOBAR_PROCESS", "ISOBAR_CONFIG", "ISOBAR_TOOLS", "ISOBAR_VERSITYGW",
	"ISOBAR_NATS", "ISOBAR_CREDS", "ISOBAR_CA", "ISOBAR_CERT", "ISOBAR_KEY"}

// Table is the keys of the daemons, and then those of topologies.
var Table = config.NewTable(append(daemons, config.Keys()...))

// Read returns the values of a file, if path is not empty, of environment variables
// (NAME=VALUE, as os.Environ has them), and of -c flags, each over those before it.
func Read(path string, environ, assignments []string) (config.Values, error) {
	var file config.Values
	if path != "" {
		var err error
		if file, err = Table.Load(path); err != nil {
			return config.Values{}, err
		}
	}
	env, err := Table.Environment(Prefix, environ, others...)
	if err != nil {
		return config.Values{}, err
	}
	flags, err := Table.ParseAssignments(assignments)
	if err != nil {
		return config.Values{}, err
	}
	return config.Merge(Defaults(), file, env, flags), nil
}

// Defaults returns the values of daemons that were told nothing.
func Defaults() config.Values {
	v, err := Table.Of(config.FromDefault, nil)
	if err != nil {
		panic(err)
	}
	return v
}

// ForTopologies returns what was set of the keys of topologies: what topologies get that
// do not set them. "user." keys are among them.
func ForTopologies(v config.Values) map[string]any {
	set := map[string]any{}
	for name, value := range v.Set() {
		if !isDaemons(name) {
			set[name] = value
		}
	}
	return set
}

// Shown returns all values for an operator to see. None of them is a secret: those are in
// files that the values name.
func Shown(v config.Values) map[string]any { return maps.Collect(v.All()) }

func isDaemons(name string) bool {
	for _, k := range daemons {
		if k.Name == name {
			return true
		}
	}
	return false
}

// Markdown returns the reference page of the keys of daemons.
func Markdown() string {
	var sb strings.Builder
	sb.WriteString(`# Configuration of the daemons

<!-- Generated from engine/cluster/daemonconf/table.go by go generate; do not edit. -->

` + "`isobar nats`, `isobar nimbus` and `isobar supervisor`" + ` merge values in this order, each over the one before: the default, the
configuration file (` + "`--config FILE`" + `, YAML, one flat ` + "`key: value`" + ` a line; a list may be a YAML list), the
environment (` + "`nimbus.lease.secs` is `ISOBAR_NIMBUS_LEASE_SECS`" + `), and ` + "`-c key=value`" + ` on the command line. A key
that is not known is refused, with the name of the nearest one, and so is a variable that begins with ` + "`ISOBAR_`" + `,
unless it is one that Kubernetes sets for a service.

The keys of [topologies](config.md) may be set for nimbus too. They are then what topologies get that do not set
them themselves; ` + "`nimbus.protected.keys`" + ` names those that no topology may set otherwise.

The scope says which daemon reads a key.

`)
	config.NewTable(daemons).WriteMarkdown(&sb)
	return sb.String()
}
