// Package tests holds what no single room can test: the policy of imports and state, goldens, and
// whole runs.
package tests

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "graft"

// floors is the policy: a package imports only packages of rows above its own. Every package of the
// module stands here.
func floors() [][]string {
	return [][]string{
		// 0: formats, text, numbers, integers: nothing of ours below
		{"kernels/quant", "kernels/libm", "kernels/rng", "infer/paged", "weights/durable", "spelling", "model/tokenizer", "model/template", "rewards/child", "rewards/mathverify"},
		{"weights/gguf", "weights/safetensors", "rewards"}, // still 0, above the parts that they are made of
		// 1
		{"kernels", "kernels/cpu/vec", "tiny"},
		// 2
		{"kernels/ref", "kernels/cpu"},
		// 3
		{"weights", "kernels/kernelstest"},
		// 4
		{"model"},
		// 5
		{"infer", "rl"},
		// 6
		{"infer/openai", "rl/grpo", "rl/dpo", "rl/sft"},
		// 7: programs, and what they share
		{"cmd/internal/launch", "cmd/internal/loop"},
		{"cmd/rltrain", "cmd/serve", "bench", "tiny/recipe"},
		// tests import anything
		{"tests", "tests/golden"},
	}
}

// backends are named by programs only; everything else takes a kernels.Backend.
func backends() map[string][]string {
	programs := []string{"cmd/", "bench", "tiny/recipe", "tests"}
	return map[string][]string{"kernels/cpu": programs, "kernels/ref": append([]string{"kernels/kernelstest"}, programs...)}
}

// mutable lists the package variables that may change after start, with the reason.
func mutable() map[string]string {
	return map[string]string{}
}

// longFiles lists the files that may pass maxLines, with the reason.
func longFiles() map[string]string {
	return map[string]string{
		"model/tokenizer/categories.go": "generated tables",
	}
}

const maxLines = 500

// source is one parsed file of the module.
type source struct {
	path string // slash-separated, from the module's root
	pkg  string // its folder
	test bool
	file *ast.File
	text []byte
}

// sources parses every Go file, whatever its build tags but ignore: policy holds on all platforms.
func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	var out []source
	set := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if p != root && (name == "testdata" || strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("\n//go:build ignore")) || bytes.HasPrefix(text, []byte("//go:build ignore")) {
			return nil
		}
		f, err := parser.ParseFile(set, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		out = append(out, source{path: rel, pkg: path.Dir(rel), test: strings.HasSuffix(name, "_test.go"), file: f, text: text})
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

// broken lists the imports that go up or sideways. files may be made up: the test of this test.
func broken(files []source) (problems []string) {
	floor := map[string]int{}
	for i, row := range floors() {
		for _, pkg := range row {
			floor[pkg] = i
		}
	}
	for _, s := range files {
		own, ok := floor[s.pkg]
		if !ok {
			problems = append(problems, s.path+": package "+s.pkg+" has no floor; give it one in tests/imports_test.go")
			continue
		}
		if s.test {
			continue // tests may look up: kernels are tested by kernelstest
		}
		for _, spec := range s.file.Imports {
			full, _ := strconv.Unquote(spec.Path.Value)
			pkg, ours := strings.CutPrefix(full, module+"/")
			if !ours {
				if full == "C" {
					problems = append(problems, s.path+" uses cgo")
				}
				continue
			}
			if f, ok := floor[pkg]; !ok || f >= own {
				problems = append(problems, fmt.Sprintf("%s imports %s, which is not on a lower floor than %s", s.path, pkg, s.pkg))
			}
			if users, ok := backends()[pkg]; ok && !slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(s.pkg, u) }) {
				problems = append(problems, fmt.Sprintf("%s names the backend %s; take a kernels.Backend", s.path, pkg))
			}
		}
	}
	return problems
}

func TestPackagesImportOnlyLowerFloors(t *testing.T) {
	require.Empty(t, broken(sources(t)))
}

func TestEveryFloorIsInhabited(t *testing.T) {
	have := map[string]bool{}
	for _, s := range sources(t) {
		have[s.pkg] = true
	}
	seen := map[string]bool{}
	for _, row := range floors() {
		for _, pkg := range row {
			require.True(t, have[pkg], "%s has a floor but no files", pkg)
			require.False(t, seen[pkg], "%s has two floors", pkg)
			seen[pkg] = true
		}
	}
}

// fake parses a file that is not there.
func fake(t *testing.T, file, text string) source {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
	require.NoError(t, err)
	return source{path: file, pkg: path.Dir(file), file: f, text: []byte(text)}
}

func TestPolicySeesWhatItForbids(t *testing.T) {
	for file, text := range map[string]string{
		"rl/a.go":          `package rl; import _ "graft/infer"`,
		"kernels/a.go":     `package kernels; import _ "graft/weights"`,
		"model/a.go":       `package model; import _ "graft/kernels/cpu"`,
		"weights/a.go":     `package weights; import _ "graft/nowhere"`,
		"nowhere/a.go":     `package nowhere`,
		"infer/paged/a.go": `package paged; import "C"`,
	} {
		require.Len(t, broken([]source{fake(t, file, text)}), 1, file)
	}
	require.Empty(t, broken([]source{fake(t, "rl/a.go", `package rl; import _ "graft/model"`)}))
	for text, want := range map[string]int{
		"package a\nvar x int":                                                  1,
		"package a\nvar x = 1\nfunc f() { x = 2 }":                              1,
		"package a\nvar x = 1\nfunc f() { x++ }":                                1,
		"package a\nvar x = 1\nfunc f() *int { return &x }":                     1,
		"package a\nvar x = []int{1}\nfunc f() { x[0] = 2 }":                    1,
		"package a\nvar x = map[int]int{}\nfunc f() { delete(x, 1) }":           1,
		"package a\nvar x = struct{ a int }{}\nfunc f() { x.a = 2 }":            1,
		"package a\nimport \"sync\"\nvar x = sync.Mutex{}":                      1,
		"package a\nfunc init() {}":                                             1,
		"package a\nvar x = []int{1}\nfunc f() int { x := 2; x = 3; return x }": 0,
		"package a\nvar x = []int{1}\nfunc f() int { return x[0] }":             0,
		"package a\nvar _ interface{} = 1":                                      0,
		"package a\n//go:embed b\nvar x string":                                 0,
	} {
		require.Len(t, stateful([]source{fake(t, "a/a.go", text)}), want, text)
	}
}

// stateful lists init functions and package variables that change, or that could not be there but
// to change.
func stateful(files []source) (problems []string) {
	type key struct{ pkg, name string }
	vars := map[key]string{}
	for _, s := range files {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					problems = append(problems, s.path+" has an init function")
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, spec := range d.Specs {
					v := spec.(*ast.ValueSpec)
					for _, name := range v.Names {
						if name.Name == "_" {
							continue
						}
						vars[key{s.pkg, name.Name}] = s.path
						if why := suspicious(d, v); why != "" && mutable()[s.pkg+"."+name.Name] == "" {
							problems = append(problems, fmt.Sprintf("%s: package variable %s %s", s.path, name.Name, why))
						}
					}
				}
			}
		}
	}
	for _, s := range files {
		if s.test {
			continue
		}
		change := func(e ast.Expr, how string) {
			id := rootOf(e)
			if id == nil || id.Obj != nil && s.file.Scope.Lookup(id.Name) != id.Obj {
				return
			}
			if _, ok := vars[key{s.pkg, id.Name}]; ok && mutable()[s.pkg+"."+id.Name] == "" {
				problems = append(problems, fmt.Sprintf("%s %s package variable %s", s.path, how, id.Name))
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						change(e, "assigns to")
					}
				}
			case *ast.IncDecStmt:
				change(n.X, "counts")
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					if id, ok := n.X.(*ast.Ident); ok {
						change(id, "takes the address of")
					}
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && id.Obj == nil && len(n.Args) > 0 {
					change(n.Args[0], "empties")
				}
			}
			return true
		})
	}
	return problems
}

// suspicious says why a variable can only be state: it has no value, or a lock.
func suspicious(d *ast.GenDecl, v *ast.ValueSpec) string {
	if len(v.Values) == 0 {
		for _, doc := range []*ast.CommentGroup{d.Doc, v.Doc} {
			if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
				return ""
			}
		}
		return "has no value"
	}
	state := ""
	for _, e := range append(slices.Clone(v.Values), v.Type) {
		if e == nil {
			continue
		}
		ast.Inspect(e, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
					state = "is a " + x.Name + "." + sel.Sel.Name
				}
			}
			return true
		})
	}
	return state
}

// rootOf is the variable that an expression is a part of: x of x.a[i].
func rootOf(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func TestNoInitAndNoPackageState(t *testing.T) {
	require.Empty(t, stateful(sources(t)))
}

func TestFilesAreShort(t *testing.T) {
	type long struct {
		path  string
		lines int
	}
	var found []long
	for _, s := range sources(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > 400 {
			found = append(found, long{s.path, n})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].lines > found[j].lines })
	for _, l := range found {
		t.Logf("%4d %s", l.lines, l.path) // above 400 a second idea may have moved in
		if longFiles()[l.path] == "" {
			require.LessOrEqual(t, l.lines, maxLines, l.path)
		}
	}
}

func TestRoomsExist(t *testing.T) {
	for _, room := range []string{"kernels", "weights", "model", "infer", "rewards", "rl", "cmd", "tests", "tiny"} {
		info, err := os.Stat(filepath.Join("..", room))
		require.NoError(t, err)
		require.True(t, info.IsDir())
	}
}

func TestNamesSayWhatIsInside(t *testing.T) {
	for _, s := range sources(t) {
		for _, part := range strings.FieldsFunc(strings.TrimSuffix(s.path, ".go"), func(r rune) bool { return r == '/' || r == '_' }) {
			require.NotContains(t, []string{"util", "utils", "common", "helper", "helpers", "misc", "manager"}, part, s.path)
		}
	}
}
