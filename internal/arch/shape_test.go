package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

const (
	fileLinesMax     = 500
	functionLinesMax = 70
)

// empty names say nothing about what a package or type is for.
var (
	emptyPackage = regexp.MustCompile(`^(utils?|common|managers?|helpers?|misc)$`)
	emptyType    = regexp.MustCompile(`^(Common|common)$|([a-z]|^)(Manager|Helper|Utils?)s?$|^(manager|helper|utils?)s?$`)
)

// checkNames: no package and no type has an empty name.
func checkNames(s *source) []string {
	var problems []string
	if n := strings.TrimSuffix(s.ast.Name.Name, "_test"); emptyPackage.MatchString(n) {
		problems = append(problems, s.at(s.ast.Name, "package %s: name it for what it does", n))
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && emptyType.MatchString(spec.Name.Name) {
			problems = append(problems, s.at(spec, "type %s: name it for what it does", spec.Name.Name))
		}
		return true
	})
	return problems
}

var longReason = regexp.MustCompile(`(?m)^long: \S+`)

// checkLength: files and functions stay short, or say why not. Functions of tests
// may be long.
func checkLength(s *source) []string {
	var problems []string
	if lines := strings.Count(s.text, "\n"); lines > fileLinesMax && !explained(s.ast.Comments, s.ast.Package) {
		problems = append(problems, fmt.Sprintf("%s: %d lines, more than %d", s.path, lines, fileLinesMax))
	}
	if s.isTest() {
		return problems
	}
	for _, d := range s.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Doc != nil && longReason.MatchString(f.Doc.Text()) {
			continue
		}
		if lines := s.line(f.End()) - s.line(f.Pos()) + 1; lines > functionLinesMax {
			problems = append(problems, s.at(f, "%s has %d lines, more than %d", f.Name.Name, lines, functionLinesMax))
		}
	}
	return problems
}

func explained(comments []*ast.CommentGroup, before token.Pos) bool {
	return slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < before && longReason.MatchString(c.Text())
	})
}

// checkDocumentation: every exported name that others can import says what it
// promises. What Error and Unwrap promise is known.
func checkDocumentation(s *source) []string {
	if s.isTest() || s.isInternal() || s.isMain() {
		return nil
	}
	var problems []string
	missing := func(n ast.Node, name string) {
		problems = append(problems, s.at(n, "exported %s has no doc comment", name))
	}
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			known := d.Recv != nil && (d.Name.Name == "Error" || d.Name.Name == "Unwrap")
			if d.Name.IsExported() && d.Doc == nil && !known && exportedReceiver(d) {
				missing(d, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				for _, name := range undocumented(d, spec) {
					missing(spec, name)
				}
			}
		}
	}
	return problems
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return true
	}
	exported := false
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !exported {
			exported = id.IsExported()
			return false
		}
		return !exported
	})
	return exported
}

// undocumented returns the exported names of a spec that no comment covers: its
// own, one at the end of its line, or one above the group. A type in a group needs
// its own.
func undocumented(d *ast.GenDecl, spec ast.Spec) []string {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		grouped := d.Lparen.IsValid()
		if spec.Name.IsExported() && spec.Doc == nil && spec.Comment == nil && (grouped || d.Doc == nil) {
			return []string{spec.Name.Name}
		}
	case *ast.ValueSpec:
		if spec.Doc != nil || spec.Comment != nil || d.Doc != nil {
			return nil
		}
		var names []string
		for _, n := range spec.Names {
			if n.IsExported() {
				names = append(names, n.Name)
			}
		}
		return names
	}
	return nil
}

// packagesWithoutComment lists the folders with code of which no file has a
// package comment.
func packagesWithoutComment(tree []*source) []string {
	commented := map[string]bool{}
	for _, s := range tree {
		if s.ast != nil && !s.isTest() {
			commented[s.dir] = commented[s.dir] || s.ast.Doc != nil
		}
	}
	var problems []string
	for dir, ok := range commented {
		if !ok {
			problems = append(problems, dir+": the package has no package comment")
		}
	}
	slices.Sort(problems)
	return problems
}

// outside finds places that are on somebody's machine, and numbers that only a
// tracker explains.
var outside = regexp.MustCompile(`(?:^|[\s"'(=` + "`" + `])(?:/home/|/root/|/Users/)|(?i)\bissues? #?\d`)

// putOff finds work that was left for later.
var putOff = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|(?i)\bnot (yet )?implemented\b`)

// checkPlaces: whoever reads a file has the repository and nothing else.
func checkPlaces(s *source) []string {
	return matches(s, outside, "names something outside the repository")
}

// checkPutOff: what is in the tree is done.
func checkPutOff(s *source) []string {
	return matches(s, putOff, "puts something off")
}

// matches reports each line that fits re. The rules themselves and texts that
// come from elsewhere are left out.
func matches(s *source, re *regexp.Regexp, what string) []string {
	if within(s.dir, "internal/arch", "internal/kjv") {
		return nil
	}
	var problems []string
	n := 0
	for line := range strings.Lines(s.text) {
		n++
		if m := re.FindString(line); m != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: %q %s", s.path, n, strings.TrimSpace(m), what))
		}
	}
	return problems
}
