package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// module is the path that every package of the repository begins with.
const module = "github.com/isobar-io/isobar"

// source is one file of the repository.
type source struct {
	path string // from the root, slash-separated
	dir  string // its folder, "." for the root
	text string
	set  *token.FileSet
	ast  *ast.File // nil if it is not Go
}

// newSource parses a file if it is Go.
func newSource(name, text string) (*source, error) {
	s := &source{path: name, dir: path.Dir(name), text: text, set: token.NewFileSet()}
	if !strings.HasSuffix(name, ".go") {
		return s, nil
	}
	var err error
	s.ast, err = parser.ParseFile(s.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}

func (s *source) isTest() bool     { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) isMain() bool     { return s.ast.Name.Name == "main" }
func (s *source) isInternal() bool { return within(s.dir, "internal") }

// at formats a problem found at a node.
func (s *source) at(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.line(n.Pos()), fmt.Sprintf(format, args...))
}

func (s *source) line(p token.Pos) int { return s.set.Position(p).Line }

// imports returns the import specs by path.
func (s *source) imports() map[string]*ast.ImportSpec {
	specs := map[string]*ast.ImportSpec{}
	for _, spec := range s.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			specs[p] = spec
		}
	}
	return specs
}

// within reports whether a folder or import path is one of roots or below one.
func within(dir string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

// generated are the folders that hold nothing written by hand.
var generated = []string{".git", ".isobar", "bin"}

// readTree reads every text file of the repository.
func readTree(root string) ([]*source, error) {
	var tree []*source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if slices.Contains(generated, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || !utf8.Valid(text) {
			return err
		}
		s, err := newSource(rel, string(text))
		tree = append(tree, s)
		return err
	})
	return tree, err
}

// rule is one rule of the architecture; check returns what is wrong with a file.
type rule struct {
	name  string
	text  bool // it is about every text file, not only about Go
	check func(s *source) []string
}

func (r rule) problems(s *source) []string {
	if s.ast == nil && !r.text {
		return nil
	}
	return r.check(s)
}

var rules = []rule{
	{name: "layers", check: checkLayers},
	{name: "drivers", check: checkDrivers},
	{name: "pure cores", check: checkCore},
	{name: "goroutines", check: checkGoroutines},
	{name: "sleep", check: checkSleep},
	{name: "names", check: checkNames},
	{name: "length", check: checkLength},
	{name: "documentation", check: checkDocumentation},
	{name: "places", text: true, check: checkPlaces},
	{name: "put off", text: true, check: checkPutOff},
}

func TestTreeKeepsTheRules(t *testing.T) {
	tree, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(tree, func(s *source) bool { return s.path == "tuple/tuple.go" }) {
		t.Fatal("the tree was not found: it has no tuple/tuple.go")
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, s := range tree {
				for _, problem := range r.problems(s) {
					t.Error(problem)
				}
			}
		})
	}
	t.Run("package comments", func(t *testing.T) {
		for _, problem := range packagesWithoutComment(tree) {
			t.Error(problem)
		}
	})
}
