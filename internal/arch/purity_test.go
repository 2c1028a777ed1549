package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// isCore reports whether a file belongs to a pure core: events in, actions out.
// Of the root of checkpoint these are the deciding files; the others describe what
// it decides about.
func isCore(s *source) bool {
	if s.isTest() {
		return false
	}
	if s.dir == "checkpoint" {
		name := path.Base(s.path)
		return slices.ContainsFunc([]string{"coordinator", "mover", "retention"}, func(p string) bool {
			return strings.HasPrefix(name, p)
		})
	}
	return within(s.dir, "barrier", "txn/protocol", "engine/plan", "engine/poison", "engine/cluster/schedule",
		"engine/cluster/supervisor/slots")
}

// coreImports is all that a core may import of the standard library. Of time it may
// use the types and units only.
var coreImports = []string{
	"bytes", "cmp", "encoding/binary", "errors", "fmt", "hash/crc32", "hash/fnv", "iter", "maps", "math",
	"math/bits", "path", "slices", "sort", "strconv", "strings", "time",
}

var coreTime = []string{
	"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour",
}

// checkCore: a core has no goroutine, channel, clock, randomness, lock or I/O.
func checkCore(s *source) []string {
	if !isCore(s) {
		return nil
	}
	var problems []string
	for p, spec := range s.imports() {
		if isStandard(p) && !slices.Contains(coreImports, p) {
			problems = append(problems, s.at(spec, "a core must not import %s", p))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, s.at(n, "a core starts no goroutine"))
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			problems = append(problems, s.at(n, "a core uses no channel"))
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				problems = append(problems, s.at(n, "a core uses no channel"))
			}
		case *ast.SelectorExpr:
			if name, ok := selected(s, n, "time"); ok && !slices.Contains(coreTime, name) {
				problems = append(problems, s.at(n, "a core takes time as a value and has no use for time.%s", name))
			}
		}
		return true
	})
	return problems
}

// selected returns the name that n selects from an imported package, if it does.
func selected(s *source, n *ast.SelectorExpr, importPath string) (string, bool) {
	spec, ok := s.imports()[importPath]
	if !ok {
		return "", false
	}
	name := path.Base(importPath)
	if spec.Name != nil {
		name = spec.Name.Name
	}
	x, ok := n.X.(*ast.Ident)
	return n.Sel.Name, ok && x.Name == name
}

// mayStart are the folders whose code may start goroutines: the shell, adapters,
// which wait for theirs in Close, and programs.
var mayStart = []string{"engine", "checkpoint", "spout", "bolt", "compat", "cmd", "internal"}

// mayNotStart are exceptions below and beside those.
var mayNotStart = []string{"engine/config", "engine/plan", "engine/poison", "engine/cluster/schedule", "engine/cluster/supervisor/slots"}

// checkGoroutines: a goroutine starts only where an owner waits for it.
func checkGoroutines(s *source) []string {
	root := !strings.Contains(s.dir, "/") && within(s.dir, "checkpoint", "spout", "bolt")
	if s.isTest() || within(s.dir, mayStart...) && !within(s.dir, mayNotStart...) && !root {
		return nil
	}
	var problems []string
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			problems = append(problems, s.at(g, "%s must not start a goroutine", s.dir))
		}
		return true
	})
	return problems
}

// checkSleep: wait for the condition, not for the clock. A test may sleep inside a
// bubble of testing/synctest, where time is not the clock's.
func checkSleep(s *source) []string {
	if _, bubble := s.imports()["testing/synctest"]; bubble && s.isTest() {
		return nil
	}
	var problems []string
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := selected(s, sel, "time"); ok && name == "Sleep" {
				problems = append(problems, s.at(n, "time.Sleep: wait for the condition instead"))
			}
		}
		return true
	})
	return problems
}
