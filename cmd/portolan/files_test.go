package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// Folders below a directory are not read without -R, and the command says so. --prune does not
// delete the objects that they describe.
func TestFoldersThatArePassedOver(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	labels := ", namespace: shop, labels: {app: shop}"
	dir := write(t, map[string]string{
		"a.yaml": entry("a", labels), "sub/b.yaml": entry("b", labels), ".hidden/c.yaml": "no manifest", "notes/d.txt": "no manifest",
	})
	same(t, "with -R", a.do(t, "", "apply", "-R", "-f", filepath.Join(dir, "a.yaml"), "-f", filepath.Join(dir, "sub")).err, "")
	o := a.do(t, "", "apply", "-f", dir)
	same(t, "without -R", o.err, "-f "+dir+": passed over 1 folder with 1 file: -R reads it too\n")
	for _, command := range []string{"apply", "diff"} {
		o = a.do(t, "", command, "-f", dir, "--prune", "-l", "app=shop")
		if o.code != exit.Data || !strings.Contains(o.err, "-f "+dir+": passes over 1 folder with 1 file, and --prune would delete what is described there: add -R") {
			t.Errorf("%s --prune: %+v", command, o)
		}
	}
	same(t, "what is there", a.must(t, "", "get", "se", "-n", "shop", "-o", "name"), "serviceentry/shop/a\nserviceentry/shop/b\n")

	dir = write(t, map[string]string{"a.yaml": entry("a", labels), "sub/b.yaml": "", "sub/deep/c.json": "", "sub/deep/d.yml": ""})
	same(t, "several", a.do(t, "", "apply", "-f", dir).err, "-f "+dir+": passed over 2 folders with 3 files: -R reads them too\n")
}

func TestSeverityCount(t *testing.T) {
	t.Parallel()
	same(t, "counts", strings.Join([]string{severityCount(1, "error"), severityCount(2, "error"), severityCount(2, "warning"), severityCount(2, "info")}, ", "),
		"1 error, 2 errors, 2 warnings, 2 info")
}
