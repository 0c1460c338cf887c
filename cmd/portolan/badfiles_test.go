package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// readsFile are the names of flags that name a file.
var readsFile = []string{"filename", "patch-file", "from-file", "dump", "key-file", "passphrase-file", "crl", "claims"}

// TestBadFilesOfEveryCommand: a file that is missing, is a directory, cannot be read, is enormous or
// has other content than it should gives one clear error, and no server is changed.
func TestBadFilesOfEveryCommand(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	before := a.Must(t, "", "get", "se", "-A", "-o", "yaml")
	f := newBadInput(t)
	enormous := f.file("enormous")
	if err := os.WriteFile(enormous, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(enormous, 300<<20); err != nil { // it takes no room
		t.Fatal(err)
	}
	unusable := []string{f.file("none"), t.TempDir(), enormous}
	if _, err := os.Stat("/proc/self/mem"); err == nil {
		unusable = append(unusable, "/proc/self/mem") // root can open it, and nobody can read its beginning
	}
	odd := []string{f.file("empty"), f.file("binary"), f.file("other")}
	t.Run("commands", func(t *testing.T) {
		for name, c := range everyCommand() {
			use := usages[name]
			lines := strings.Join(slices.Collect(maps.Keys(use.files)), " ")
			for _, flag := range readsFile {
				if one := c.LocalNonPersistentFlags().Lookup(flag); one != nil && !slices.Contains(use.lateFiles, flag) && !strings.Contains(lines, "--"+flag) && (one.Shorthand == "" || !strings.Contains(lines, "-"+one.Shorthand+" ")) {
					t.Errorf("%s: usages says of no line with --%s what becomes of bad files", name, flag)
				}
			}
			for line, anything := range use.files {
				t.Run(name+" "+line, func(t *testing.T) {
					t.Parallel()
					bad := unusable
					if !anything {
						bad = slices.Concat(unusable, odd)
					}
					for _, file := range bad {
						args := f.line(name, strings.ReplaceAll(line, "BAD", file))
						if !use.offline {
							args = append(args, "--server", a.URL)
						}
						oneClearError(t, args, do(t, "", args...), exit.Data, file)
					}
				})
			}
		}
	})
	if after := a.Must(t, "", "get", "se", "-A", "-o", "yaml"); after != before {
		t.Errorf("something is changed:\n%s", after)
	}
}
