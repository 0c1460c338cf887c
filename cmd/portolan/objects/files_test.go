package objects

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// Folders below a directory are not read without -R, and the command says so. --prune does not
// delete the objects that they describe.
func TestFoldersThatArePassedOver(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	labels := ", namespace: shop, labels: {app: shop}"
	dir := clitest.Write(t, map[string]string{
		"a.yaml": clitest.Entry("a", labels), "sub/b.yaml": clitest.Entry("b", labels), ".hidden/c.yaml": "no manifest", "notes/d.txt": "no manifest",
	})
	clitest.Same(t, "with -R", a.Do(t, "", "apply", "-R", "-f", filepath.Join(dir, "a.yaml"), "-f", filepath.Join(dir, "sub")).Err, "")
	o := a.Do(t, "", "apply", "-f", dir)
	clitest.Same(t, "without -R", o.Err, "-f "+dir+": passed over 1 folder with 1 file: -R reads it too\n")
	for _, command := range []string{"apply", "diff"} {
		o = a.Do(t, "", command, "-f", dir, "--prune", "-l", "app=shop")
		if o.Code != exit.Data || !strings.Contains(o.Err, "-f "+dir+": passes over 1 folder with 1 file, and --prune would delete what is described there: add -R") {
			t.Errorf("%s --prune: %+v", command, o)
		}
	}
	clitest.Same(t, "what is there", a.Must(t, "", "get", "se", "-n", "shop", "-o", "name"), "serviceentry/shop/a\nserviceentry/shop/b\n")

	dir = clitest.Write(t, map[string]string{"a.yaml": clitest.Entry("a", labels), "sub/b.yaml": "", "sub/deep/c.json": "", "sub/deep/d.yml": ""})
	clitest.Same(t, "several", a.Do(t, "", "apply", "-f", dir).Err, "-f "+dir+": passed over 2 folders with 3 files: -R reads them too\n")
}

func TestSeverityCount(t *testing.T) {
	t.Parallel()
	clitest.Same(t, "counts", strings.Join([]string{severityCount(1, "error"), severityCount(2, "error"), severityCount(2, "warning"), severityCount(2, "info")}, ", "),
		"1 error, 2 errors, 2 warnings, 2 info")
}
