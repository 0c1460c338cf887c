package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// markdown returns the Markdown files of the repository, by their paths from its root.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	eachFile(t, ".md", func(path string) error {
		text, err := os.ReadFile(path)
		out[strings.TrimPrefix(filepath.ToSlash(path), "../")] = string(text)
		return err
	})
	return out
}

// eachFile calls f with the path of each file of the repository with a suffix. It skips test
// data, and what git ignores.
func eachFile(t *testing.T, suffix string, f func(path string) error) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || slices.Contains(ignored, name) || name == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		return f(path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	fencedCode = regexp.MustCompile("(?ms)^```.*?^```$")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	codePath   = regexp.MustCompile("`((?:storage|cache|discovery|xds|cmd|integration|examples|docs)/[A-Za-z0-9_./-]*[A-Za-z0-9])`")
	testName   = regexp.MustCompile("`(?:[a-z/]+\\.)?((?:Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9]*)`")
	goName     = regexp.MustCompile("`(?:([A-Za-z]\\w*)\\.)?([A-Za-z]\\w*)(?:[(\\[{][^`\n]*)?`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
)

// anchors returns the anchors of the headings of a document.
func anchors(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fencedCode.ReplaceAllString(text, ""), -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(slug, " ", "-"))
	}
	return out
}

// TestLayersDocumentsLinkToWhatIsThere: the relative links in all documents resolve, including
// sections. Another document links to every page of docs.
func TestLayersDocumentsLinkToWhatIsThere(t *testing.T) {
	t.Parallel()
	all := markdown(t)
	linked := map[string]bool{}
	for path, text := range all {
		text = inlineCode.ReplaceAllString(fencedCode.ReplaceAllString(text, ""), "")
		for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
			}
			if target != path {
				linked[target] = true
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			} else if anchor != "" && !slices.Contains(anchors(all[target]), anchor) {
				t.Errorf("%s links to %s, which has no such section", path, m[1])
			}
		}
	}
	for path := range all {
		if strings.HasPrefix(path, "docs/") && !linked[path] {
			t.Errorf("no document links to %s", path)
		}
	}
}

// TestLayersDocumentsNameWhatIsThere: the paths and the tests that documents name in code
// quotes exist.
func TestLayersDocumentsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range markdown(t) {
		for _, m := range codePath.FindAllStringSubmatch(text, -1) {
			named, _, _ := strings.Cut(m[1], ".Test") // a test has its package before it
			if _, err := os.Stat(filepath.Join("..", named)); err != nil {
				t.Errorf("%s names %s, which is not there", path, named)
			}
		}
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s names %s, which is no test", path, m[1])
			}
		}
	}
}

// guides are the documents that explain the code by names of the source.
var guides = []string{"docs/architecture.md", "docs/one-resource-on-a-stream.md", "docs/adding.md"}

// notOurs are names in the guides that the source does not declare.
var notOurs = map[string]string{
	"NotBuilt":                    "a reason of a condition",
	"cobra.Command":               "the library of the command line",
	"everyListener":               "a function of a test",
	"hostRows.diff":               "a method of a variable",
	"json.Unmarshaler":            "the standard library",
	"metav1.Time":                 "Kubernetes",
	"sentNonce":                   "a field of JSON",
	"trafficPolicy.proxyProtocol": "a field of DestinationRule",
}

// declared has the names that the source declares: top-level names, fields and methods. It has
// each alone, and after its package or type and a dot.
type declared map[string]bool

// addFile adds the declarations of a file.
func (d declared) addFile(file *ast.File) {
	pkg := file.Name.Name
	add := func(owner, name string) {
		d[name], d[owner], d[owner+"."+name] = true, true, true
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				add(pkg, decl.Name.Name)
			} else {
				add(receiver(decl.Recv.List[0].Type), decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						add(pkg, name.Name)
					}
				case *ast.TypeSpec:
					add(pkg, spec.Name.Name)
					for _, name := range members(spec.Type) {
						add(spec.Name.Name, name)
					}
				}
			}
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members returns the names of the fields of a struct, or of the methods of an
// interface.
func members(e ast.Expr) []string {
	var fields *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		return nil
	}
	var out []string
	for _, field := range fields.List {
		for _, name := range field.Names {
			out = append(out, name.Name)
		}
	}
	return out
}

// source returns the declarations of the Go files of the repository without tests.
func source(t *testing.T) declared {
	t.Helper()
	all := declared{}
	eachFile(t, ".go", func(path string) error {
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			all.addFile(file)
		}
		return err
	})
	return all
}

// goNames returns the Go names that a document has in code quotes: `owner.name`, and names of
// mixed case without an owner, since no other language has such.
func goNames(text string) []string {
	var out []string
	for _, m := range goName.FindAllStringSubmatch(fencedCode.ReplaceAllString(text, ""), -1) {
		owner, name := m[1], m[2]
		switch {
		case name == "go", name == "md", testName.MatchString("`" + name + "`"): // a file, a test
		case owner != "":
			out = append(out, owner+"."+name)
		case name != strings.ToLower(name) && name != strings.ToUpper(name):
			out = append(out, name)
		}
	}
	return out
}

// TestLayersGuidesNameWhatIsDeclared: the source declares the Go names in the code quotes of
// the guides.
func TestLayersGuidesNameWhatIsDeclared(t *testing.T) {
	t.Parallel()
	all, used := source(t), map[string]bool{}
	documents := markdown(t)
	for _, path := range guides {
		names := goNames(documents[path])
		if len(names) == 0 {
			t.Errorf("%s names nothing of the source", path)
		}
		for _, name := range names {
			if _, foreign := notOurs[name]; foreign {
				used[name] = true
			} else if !all[name] {
				t.Errorf("%s names %s, which the source does not declare", path, name)
			}
		}
	}
	for name := range notOurs {
		if !used[name] {
			t.Errorf("no guide names %s: take it off the list", name)
		}
	}
}
