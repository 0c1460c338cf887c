package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/portolan-mesh/portolan"

// layers are the layers of the source. Each may import itself and those before it.
var layers = []string{"storage", "cache", "discovery", "xds", "cmd"}

// rooms are the packages of xds in the order of the data flow: what derives and builds, what
// delivers, the server. Each may import those before it. A package below a room, such as
// xds/generate/route, belongs to the room.
var rooms = []string{
	"xds/names", "xds/envoy", "xds/resource", "xds/meshconfig", "xds/mesh", "xds/generate", "xds/verdict", "xds/export", "xds/desired/memo", "xds/desired",
	"xds/delivery/nameset", "xds/delivery/protocol", "xds/delivery", "xds/encode",
	"xds/transcript", "xds/progress", "xds/simulate", "xds/explain", "xds/bootstrap", "xds/admission", "xds", "xds/admin",
}

// topLevel lists everything at the top of the repository, except dot files and what git
// ignores.
var topLevel = []string{
	"CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "cache", "cmd", "discovery", "docs", "examples", "go.mod", "go.sum", "integration", "storage", "xds",
}

// ignored are the directories that .gitignore allows at the top.
var ignored = []string{"bin", "dist"}

// pkg is a package as `go list` describes it.
type pkg struct {
	ImportPath, Name, Doc              string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

// path returns the path within the module.
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

// layerOf returns the top directory of a package of this module, "" for another package.
func layerOf(importPath string) string {
	layer, _, _ := strings.Cut(pathOf(importPath), "/")
	return layer
}

// pathOf returns the path of a package within the module, "" for another package.
func pathOf(importPath string) string {
	path, ok := strings.CutPrefix(importPath, modulePath+"/")
	if !ok {
		return ""
	}
	return path
}

// wrongLayer says why the layers forbid an import, "" if they allow it.
func wrongLayer(from, to string) string {
	from, to = layerOf(from), layerOf(to)
	switch {
	case to == "" || from == to:
	case to == "integration" || to == "examples":
		return "nothing imports " + to
	case from == "integration":
	case slices.Index(layers, from) < slices.Index(layers, to):
		return "it is to its right: " + strings.Join(layers, " <- ")
	}
	return ""
}

// wrongRoom says why the rooms forbid an import within xds, "" if they allow it.
func wrongRoom(from, to string) string {
	from, to = pathOf(from), pathOf(to)
	if layer, _, _ := strings.Cut(to, "/"); layer != "xds" {
		return ""
	}
	here, there := roomOf(from), roomOf(to)
	switch {
	case here < 0:
		return from + " is in no room of xds"
	case there < 0:
		return to + " is in no room of xds"
	case here < there:
		return "it is to its right: " + strings.Join(rooms, " <- ")
	}
	return ""
}

// roomOf returns the index of a package's room, -1 for none.
func roomOf(path string) int {
	for path != "xds" {
		if i := slices.Index(rooms, path); i >= 0 {
			return i
		}
		slash := strings.LastIndex(path, "/")
		if slash < 0 || path[:slash] == "xds" {
			return -1
		}
		path = path[:slash]
	}
	return slices.Index(rooms, path)
}

// forTests reports whether a package is only for tests. A part of its path says so.
func forTests(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(part, "test") {
			return true
		}
	}
	return false
}

// TestLayersImportLeft includes tests: if a layer's tests need a later layer, they probably
// belong there.
func TestLayersImportLeft(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, imported := range p.allImports() {
			if why := wrongLayer(p.ImportPath, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.path(), imported, why)
			}
		}
	}
}

// TestLayersRoomsImportLeft excludes tests: those of a room build a whole world.
func TestLayersRoomsImportLeft(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range listPackages(t) {
		if layerOf(p.ImportPath) != "xds" || forTests(p.path()) {
			continue
		}
		room := roomOf(p.path())
		if room < 0 {
			t.Errorf("%s is in no room of xds: %s", p.path(), strings.Join(rooms, " <- "))
			continue
		}
		seen[rooms[room]] = true
		for _, imported := range p.Imports {
			if why := wrongRoom(p.ImportPath, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.path(), imported, why)
			}
		}
	}
	for _, room := range rooms {
		if !seen[room] {
			t.Errorf("there is no package %s", room)
		}
	}
}

// TestLayersAreJudged: the checks find an import that points right, and no other.
func TestLayersAreJudged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		from, to    string
		layer, room bool // whether the import is wrong by layers, and by rooms
	}{
		{"cache", "storage", false, false},
		{"storage/etcd", "cache", true, false},
		{"xds", "cmd/portolan/serve", true, false},
		{"discovery", "integration/load", true, false},
		{"integration/load", "xds", false, false},
		{"xds/mesh", "discovery/rows", false, false},
		{"xds/mesh", "xds/generate", false, true},
		{"xds/generate", "xds/mesh", false, false},
		{"xds/generate/route", "xds/generate/virtualhost", false, false},
		{"xds/generate/route", "xds/desired/memo", false, true},
		{"xds/desired/memo", "xds/desired", false, true},
		{"xds/delivery/protocol", "xds/delivery", false, true},
		{"xds/delivery", "xds/delivery/nameset", false, false},
		{"xds/progress", "xds", false, true},
		{"xds/envoy", "xds/resource", false, true},
		{"xds/admin", "xds", false, false},
		{"xds", "xds/secret", false, true},
		{"xds/secret/deep", "xds/mesh", false, true},
	} {
		from, to := modulePath+"/"+tc.from, modulePath+"/"+tc.to
		if why := wrongLayer(from, to); (why != "") != tc.layer {
			t.Errorf("%s imports %s: judged %q", tc.from, tc.to, why)
		}
		if layerOf(from) != "xds" {
			continue
		}
		if why := wrongRoom(from, to); (why != "") != tc.room {
			t.Errorf("%s imports %s: judged %q", tc.from, tc.to, why)
		}
	}
	if why := wrongLayer(modulePath+"/storage", "google.golang.org/grpc"); why != "" {
		t.Errorf("a package of another module: judged %q", why)
	}
}

// TestLayersLeaves pins the packages that import little or nothing of the module.
func TestLayersLeaves(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, p := range listPackages(t) {
		for _, imported := range p.Imports {
			own := layerOf(imported) != ""
			first, _, _ := strings.Cut(imported, "/")
			switch path := p.path(); {
			case path == "storage/pmap", path == "xds/names":
				if strings.Contains(first, ".") {
					t.Errorf("%s imports %s: it imports the standard library only", path, imported)
				}
			case roomOf(path) == slices.Index(rooms, "xds/envoy") && !forTests(path):
				if of := pathOf(imported); own && of != "xds/names" && !strings.HasPrefix(of, "xds/envoy/") {
					t.Errorf("%s imports %s: it knows nothing of Portolan", path, imported)
				}
			case path == "storage/host":
				if own && !strings.HasPrefix(imported, modulePath+"/storage/") {
					t.Errorf("storage/host imports %s", imported)
				}
			case path == "xds/delivery" || strings.HasPrefix(path, "xds/delivery/") || path == "xds/encode":
				if of := roomOf(pathOf(imported)); of >= slices.Index(rooms, "xds/mesh") && of <= slices.Index(rooms, "xds/desired") {
					t.Errorf("%s imports %s: it knows resources, and not what they are made of", path, imported)
				}
			}
		}
		found[p.path()] = true
	}
	for _, name := range []string{"storage/pmap", "xds/names", "xds/envoy"} {
		if !found[name] {
			t.Errorf("there is no %s: does this test still test it?", name)
		}
	}
}

// TestLayersAgent: what a program on a machine of a workload shares with the server needs neither
// the server nor its store, nor what makes resources.
func TestLayersAgent(t *testing.T) {
	t.Parallel()
	shared := []string{"storage/childprocess", "discovery/identity/certificate", "cmd/portolan/enroll", "cmd/portolan/contexts", "cmd/portolan/rest/client"}
	args := []string{"list", "-deps"}
	for _, path := range shared {
		args = append(args, "./"+path)
	}
	list := exec.Command("go", args...)
	list.Dir, list.Stderr = "..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	needed := strings.Fields(string(out))
	if !slices.Contains(needed, modulePath+"/cmd/portolan/rest/client") {
		t.Fatalf("the list lacks what it is of: %q", needed)
	}
	for _, imported := range needed {
		for _, heavy := range []string{
			"go.etcd.io/", "github.com/envoyproxy/", "github.com/prometheus/",
			modulePath + "/storage/etcd", modulePath + "/cache", modulePath + "/xds/mesh", modulePath + "/xds/generate", modulePath + "/cmd/portolan/serve",
		} {
			if strings.HasPrefix(imported, heavy) {
				t.Errorf("what an agent shares needs %s", imported)
			}
		}
	}
}

// TestLayersTestPackages: only tests import the packages for tests.
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

// TestLayersEnvironment: only the command line reads environment variables. Packages for tests may read how
// long to run.
func TestLayersEnvironment(t *testing.T) {
	t.Parallel()
	read := 0
	for _, p := range listPackages(t) {
		if layer := layerOf(p.ImportPath); !slices.Contains(layers, layer) || strings.HasSuffix(p.ImportPath, "test") {
			continue
		}
		for _, file := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join("..", p.path(), file))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case !bytes.Contains(source, []byte("os.Getenv(")) && !bytes.Contains(source, []byte("os.LookupEnv(")):
			case layerOf(p.ImportPath) == "cmd" && slices.Contains([]string{"cmd/portolan/cli", "cmd/portolan/serve/command"}, p.path()):
				read++
			default:
				t.Errorf("%s/%s reads an environment variable: cmd/portolan/cli reads it and passes it on", p.path(), file)
			}
		}
	}
	if read == 0 {
		t.Error("no file of cmd reads an environment variable: does this test still test anything?")
	}
}

// TestLayersNames: a package says what it is, in its name and in its first sentence.
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

// TestLayersTopLevel pins the directories at the top. Each must be one that the layers know.
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

// TestLayersDependenciesAreExplained: each direct requirement in go.mod has a line in
// docs/dependencies.md.
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
