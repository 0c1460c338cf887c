package integration

import "testing"

// TestSettingsPage runs the commands of docs/operations/settings.md: what is printed means the same,
// and the levels of the log change.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	blocks := fences(t, "docs/operations/settings.md")
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of commands: this test knows the outcome of 2", len(blocks))
	}
	d := &drill{startServer(t, serverOptions{}), t.TempDir()}
	if out := d.run(blocks[0]); out != "" {
		t.Errorf("what is printed means something else: %s", out)
	}
	d.expect(d.run("cat all.yaml"), "\ndata-dir: /tmp/mesh\n", "\nmax-watches: 2000\n", "\nlog-level: info,xds=debug\n", "\n# http3: false\n", "\n## Limits\n")
	d.expect(d.run(blocks[1]), "COMPONENT", "WAS", "xds        debug  info  2", "xds         info   debug")
}
