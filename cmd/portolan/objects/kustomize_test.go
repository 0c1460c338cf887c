package objects

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// onPath makes a directory with programs the only one on the PATH besides that of a shell.
func onPath(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// TestApplyOfKustomizations: -k takes what kustomize or kubectl builds, and says what is missing.
func TestApplyOfKustomizations(t *testing.T) {
	a := startAPI(t)
	dir := clitest.Write(t, map[string]string{"prod/x.yaml": clitest.Entry("x", ""), "prod/kustomization.yaml": "resources: [x.yaml]\n"})
	const builds = "echo 'a warning' >&2\nwhile read -r line; do echo \"$line\"; done < \"$2/x.yaml\"\n"
	indented := strings.ReplaceAll(builds, "read -r", "IFS= read -r")
	for _, test := range []struct {
		name     string
		programs map[string]string
		line     string
		want     clitest.Outcome
	}{
		{"kustomize", map[string]string{"kustomize": `[ "$1" = build ] || exit 9` + "\n" + indented, "kubectl": "exit 8"}, "apply -k prod",
			clitest.Outcome{Out: "serviceentry/default/x  created  rev 2\n", Err: "a warning\n"}},
		{"kubectl", map[string]string{"kubectl": `[ "$1" = kustomize ] || exit 9` + "\n" + indented}, "diff -k prod", clitest.Outcome{Err: "a warning\n"}},
		{"a fault", map[string]string{"kustomize": "echo 'no such\n  resource' >&2; exit 1"}, "delete -k prod",
			clitest.Outcome{Code: exit.Data, Err: "portolan: nothing was deleted: -k prod: kustomize build: exit status 1: no such resource\n"}},
		{"neither", nil, "replace -k prod",
			clitest.Outcome{Code: exit.Data, Err: "portolan: nothing was replaced: -k prod: needs kustomize or kubectl to build it, and neither is in the PATH: install one of them, or build it elsewhere and apply the result with -f -\n"}},
		{"something else", map[string]string{"kustomize": "echo 'kind: Pod'; echo 'apiVersion: v1'; echo 'metadata: {name: x}'"}, "create -k prod",
			clitest.Outcome{Code: exit.Data, Err: `portolan: nothing was created: prod: document 1 (line 1): pod/x: unknown kind "Pod" of apiVersion "v1": see portolan api-resources for those served` + "\n"}},
		{"a file", nil, "apply -k prod/x.yaml",
			clitest.Outcome{Code: exit.Data, Err: "portolan: nothing was applied: -k prod/x.yaml: is no directory: name that with the kustomization.yaml, or read the file with -f\n"}},
		{"nothing there", nil, "apply -k nope", clitest.Outcome{Code: exit.Data, Err: "portolan: nothing was applied: -k nope: no such file or directory\n"}},
		{"both", nil, "apply -k prod -f prod", clitest.Outcome{Code: exit.Usage, Err: "portolan: -k is a directory that is built first, and -f files as they are: leave one of them out\n"}},
		{"done", map[string]string{"kustomize": indented}, "delete -k prod", clitest.Outcome{Out: "serviceentry/default/x  deleted  rev 3\n", Err: "a warning\n"}},
	} {
		onPath(t, test.programs)
		t.Chdir(dir)
		if o := a.Do(t, "", strings.Fields(test.line)...); o != test.want {
			t.Errorf("%s: %+v", test.name, o)
		}
	}
}
