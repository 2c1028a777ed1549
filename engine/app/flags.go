package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
)

// Flags are the command line of a topology program. A build function asks for the
// flags of its own; each method returns the given value at once, and what nobody
// asked for is an error before anything runs.
type Flags struct {
	rest     []string // not yet asked for
	known    []flagInfo
	errs     []error
	data     string
	progress func(engine.Progress) string
	taken    []string // what was asked for and given, or is a path
	paths    bool     // record paths, as absolute ones
}

type flagInfo struct{ name, arg, usage, def string }

// String returns the flag as people write it.
func (k flagInfo) String() string {
	if len(k.name) == 1 {
		return "-" + k.name
	}
	return "--" + k.name
}

// Data returns the data folder of the run.
func (f *Flags) Data() string { return f.data }

// Progress sets how the state of a run is shown in one line. The default names every
// component with its tuples.
func (f *Flags) Progress(line func(engine.Progress) string) { f.progress = line }

// String returns the value of --name, or def. The word in `back quotes` in usage is
// how help calls the value.
func (f *Flags) String(name, def, usage string) *string {
	v := def
	for _, s := range f.take(name, usage, def) {
		v = s
	}
	return &v
}

// Strings returns the values of all --name flags in order, or def if there is none.
func (f *Flags) Strings(name string, def []string, usage string) *[]string {
	vals := f.take(name, usage, strings.Join(def, " "))
	if len(vals) == 0 {
		vals = def
	}
	return &vals
}

// Path is String for the path of a file, relative to where the program is started, which
// on a cluster is not where it runs: there it is passed on as an absolute path.
func (f *Flags) Path(name, def, usage string) *string {
	vals := f.pathFlags(name, []string{def}, usage)
	return &vals[len(vals)-1]
}

// Paths is Strings for paths of files, or patterns of them; see Path.
func (f *Flags) Paths(name string, def []string, usage string) *[]string {
	vals := f.pathFlags(name, def, usage)
	return &vals
}

func (f *Flags) pathFlags(name string, def []string, usage string) []string {
	before := len(f.taken)
	vals := f.take(name, usage, strings.Join(def, " "))
	if len(vals) == 0 {
		vals = slices.Clone(def)
	}
	if !f.paths {
		return vals
	}
	f.taken = f.taken[:before]
	for i, v := range vals {
		abs, err := filepath.Abs(v)
		if err != nil {
			f.errs = append(f.errs, fmt.Errorf("--%s %s: %w", name, v, err))
			continue
		}
		vals[i] = abs
		f.record(name, abs)
	}
	return vals
}

func (f *Flags) record(name, value string) { f.taken = append(f.taken, "--"+name+"="+value) }

// Int returns the value of --name as an integer, or def.
func (f *Flags) Int(name string, def int, usage string) *int {
	v := def
	for _, s := range f.take(name, usage, strconv.Itoa(def)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			f.errs = append(f.errs, fmt.Errorf("--%s %s: must be an integer", name, s))
		}
		v = n
	}
	return &v
}

// Bool returns whether --name was given; --name=false takes it back.
func (f *Flags) Bool(name string, usage string) *bool {
	f.note(name, usage, "", true)
	v := false
	f.rest = slices.DeleteFunc(f.rest, func(a string) bool {
		switch value, assigned, ok := isFlag(a, name); {
		case !ok:
			return false
		case !assigned, value == "true":
			v = true
		case value == "false":
			v = false
		default:
			f.errs = append(f.errs, fmt.Errorf("--%s=%s: must be true or false", name, value))
		}
		return true
	})
	if v {
		f.record(name, "true")
	}
	return &v
}

// isFlag reports whether an argument is the flag of a name, and the value that is
// assigned to it in the same argument. One dash is as good as two.
func isFlag(a, name string) (value string, assigned, ok bool) {
	a, value, assigned = strings.Cut(a, "=")
	return value, assigned, a == "--"+name || a == "-"+name
}

func (f *Flags) note(name, usage, def string, isBool bool) {
	arg := "VALUE"
	if a, rest, ok := strings.Cut(usage, "`"); ok {
		word, after, _ := strings.Cut(rest, "`")
		arg, usage = word, a+word+after
	}
	if isBool {
		arg = ""
	}
	if i := slices.IndexFunc(f.known, func(k flagInfo) bool { return k.name == name }); i >= 0 {
		f.errs = append(f.errs, fmt.Errorf("flag --%s is defined twice", name))
	}
	f.known = append(f.known, flagInfo{name, arg, usage, def})
}

// take removes all flags of a name from the command line and returns their values.
func (f *Flags) take(name, usage, def string) []string {
	f.note(name, usage, def, false)
	var vals, rest []string
	for i := 0; i < len(f.rest); i++ {
		a := f.rest[i]
		switch v, assigned, ok := isFlag(a, name); {
		case !ok:
			rest = append(rest, a)
		case assigned:
			vals = append(vals, v)
		case i+1 == len(f.rest):
			f.errs = append(f.errs, fmt.Errorf("flag %s needs a value", a))
		default:
			i++
			vals = append(vals, f.rest[i])
		}
	}
	for _, v := range vals {
		f.record(name, v)
	}
	f.rest = rest
	return vals
}

// leftOver returns an error for every argument that nobody asked for.
func (f *Flags) leftOver() []error {
	errs := f.errs
	var names []string
	for _, k := range f.known {
		names = append(names, k.String())
	}
	for _, a := range f.rest {
		name, _, _ := strings.Cut(a, "=")
		switch {
		case !strings.HasPrefix(a, "-"):
			errs = append(errs, fmt.Errorf("unexpected argument %q", a))
		default:
			errs = append(errs, fmt.Errorf("unknown flag %s, did you mean %s?", name, config.Nearest(name, names)))
		}
	}
	return errs
}

// What the commands of a topology program do; %[1]s stands for its name.
const (
	helpRun = `Usage: %[1]s [run] [flags]

Runs the topology in this process. Started again with the same flags it goes on
from its last checkpoint. To run it on a cluster: %[1]s submit NAME; see
%[1]s submit --help.
`
	helpSubmit = `Usage: %[1]s submit NAME [flags]

Uploads this program to a cluster and runs the topology there, under that name. A
cluster on this machine is started by: isobar dev.
`
)

func (f *Flags) help(program, what string) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, what+"\nFlags:\n", program)
	for _, k := range f.known {
		head := strings.TrimRight(k.String()+" "+k.arg, " ")
		def := ""
		if k.def != "" {
			def = " (default " + k.def + ")"
		}
		fmt.Fprintf(&sb, "  %-20s %s%s\n", head, k.usage, def)
	}
	return sb.String()
}
