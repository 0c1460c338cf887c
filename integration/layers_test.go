package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/portolan-mesh/portolan"

// layers are the layers of the source, each of which may import those before it
// and itself.
var layers = []string{"storage", "cache", "discovery", "xds", "cmd"}

// topLevel is all there is at the top of the repository, but for files whose
// names begin with a dot and what git ignores.
var topLevel = []string{
	"Makefile", "README.md", "cache", "cmd", "discovery", "docs", "examples", "go.mod", "go.sum", "integration", "storage", "xds",
}

// ignored is what .gitignore lets lie at the top.
var ignored = []string{"bin", "dist"}

// pkg is a package as `go list` describes it.
type pkg struct {
	ImportPath, Name, Doc              string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

// path is that within the module.
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, modulePath+"/") }

func (p pkg) allImports() []string { return slices.Concat(p.Imports, p.TestImports, p.XTestImports) }

func listPackages(t *testing.T) []pkg {
	t.Helper()
	list := exec.Command("go", "list", "-json=ImportPath,Name,Doc,GoFiles,Imports,TestImports,XTestImports", "./...")
	list.Dir, list.Stderr = "..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// layerOf is the top directory of a package of this module, "" of another's.
func layerOf(importPath string) string {
	path, ok := strings.CutPrefix(importPath, modulePath+"/")
	if !ok {
		return ""
	}
	layer, _, _ := strings.Cut(path, "/")
	return layer
}

// TestLayersImportLeft holds for tests too: what a layer's tests need of a later
// one is a sign that they belong there.
func TestLayersImportLeft(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		from := layerOf(p.ImportPath)
		for _, imported := range p.allImports() {
			to := layerOf(imported)
			switch {
			case to == "" || from == to:
			case to == "integration" || to == "examples":
				t.Errorf("%s imports %s: nothing imports %s", p.path(), imported, to)
			case from == "integration":
			case slices.Index(layers, from) < slices.Index(layers, to):
				t.Errorf("%s imports %s, which is to its right: %s", p.path(), imported, strings.Join(layers, " <- "))
			}
		}
	}
}

// TestLayersLeaves are the packages that are kept free of the rest.
func TestLayersLeaves(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, p := range listPackages(t) {
		for _, imported := range p.Imports {
			own := layerOf(imported) != ""
			first, _, _ := strings.Cut(imported, "/")
			switch p.path() {
			case "storage/pmap":
				if strings.Contains(first, ".") {
					t.Errorf("storage/pmap imports %s: it imports the standard library only", imported)
				}
			case "xds/envoy":
				if own {
					t.Errorf("xds/envoy imports %s: it knows nothing of Portolan", imported)
				}
			case "storage/host":
				if own && !strings.HasPrefix(imported, modulePath+"/storage/") {
					t.Errorf("storage/host imports %s", imported)
				}
			}
		}
		found[p.path()] = true
	}
	for _, name := range []string{"storage/pmap", "xds/envoy"} {
		if !found[name] {
			t.Errorf("there is no %s: does this test still test it?", name)
		}
	}
}

// TestLayersTestPackages are imported by tests, never by what is shipped.
func TestLayersTestPackages(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if strings.HasSuffix(p.ImportPath, "test") {
			continue
		}
		for _, imported := range p.Imports {
			if layerOf(imported) != "" && strings.HasSuffix(imported, "test") {
				t.Errorf("%s imports %s outside its tests", p.path(), imported)
			}
		}
	}
}

// TestLayersNames: a package says what it is, in its name and in its first
// sentence.
func TestLayersNames(t *testing.T) {
	t.Parallel()
	empty := []string{"util", "utils", "common", "helper", "helpers", "misc", "model", "models", "manager", "types", "pkg", "internal", "base", "lib"}
	for _, p := range listPackages(t) {
		for segment := range strings.SplitSeq(p.path(), "/") {
			if slices.Contains(empty, segment) {
				t.Errorf("%s: %q says nothing of what it has", p.path(), segment)
			}
		}
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.path())
		}
	}
}

// TestLayersTopLevel pins the directories at the top, and that each is one that
// the layers know.
func TestLayersTopLevel(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || strings.HasPrefix(name, ".") || slices.Contains(ignored, name) || slices.Contains(topLevel, name) {
			continue
		}
		t.Errorf("%s at the top of the repository: what is there is fixed, %s", name, strings.Join(topLevel, " "))
	}
	for _, p := range listPackages(t) {
		layer := layerOf(p.ImportPath)
		if !slices.Contains(layers, layer) && layer != "integration" && layer != "examples" {
			t.Errorf("%s is in no layer", p.ImportPath)
		}
	}
}

// TestLayersDependenciesAreExplained: what go.mod requires directly has its line
// in docs/dependencies.md.
func TestLayersDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir, edit.Stderr = "..", os.Stderr
	out, err := edit.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	explained, err := os.ReadFile("../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if !r.Indirect && !bytes.Contains(explained, []byte("| `"+r.Path+"` ")) {
			t.Errorf("docs/dependencies.md has no line for %s", r.Path)
		}
	}
}
