package integration

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// kubectlBinary is where `make kubectl` puts kubectl.
const kubectlBinary = "../.tools/kubectl"

// kubectl runs kubectl against a server. If there is no kubectl, the test is skipped, but fails
// in CI.
type kubectl struct {
	t    testing.TB
	path string
	args []string
	home string
}

func newKubectl(t testing.TB, s *server) kubectl {
	t.Helper()
	path := builtTool(t, "kubectl", kubectlBinary, "kubectl")
	return kubectl{t: t, path: path, args: []string{"--server=http://" + s.api, "--namespace=shop"}, home: t.TempDir()}
}

// run returns the output of kubectl, on both streams, and whether it succeeded.
func (k kubectl) run(stdin string, args ...string) (string, bool) {
	k.t.Helper()
	c := exec.CommandContext(k.t.Context(), k.path, append(args, k.args...)...)
	c.Env = []string{"HOME=" + k.home, "KUBECONFIG=" + os.DevNull, "PATH=" + os.Getenv("PATH")}
	c.Stdin = strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	return string(out), err == nil
}

// expectOutput runs kubectl, and checks that its output contains words.
func (k kubectl) expectOutput(ok bool, stdin string, args []string, words ...string) string {
	k.t.Helper()
	out, did := k.run(stdin, args...)
	if did != ok {
		k.t.Errorf("kubectl %s: succeeded is %v: %s", strings.Join(args, " "), did, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			k.t.Errorf("kubectl %s says nothing of %q: %s", strings.Join(args, " "), word, out)
		}
	}
	return out
}

// TestKubectl uses every feature of kubectl that the API supports.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	words := func(line string) []string { return strings.Fields(line) }
	k.expectOutput(true, "", words("version"), "Server Version: v")
	k.expectOutput(true, "", words("api-resources"), "virtualservices", "telemetry.istio.io/v1", "wasmplugins")
	k.expectOutput(true, "", words("get serviceentries"), "No resources found in shop namespace.")
	k.expectOutput(false, "", words("get serviceentry nothing"), `"shop" not found`)

	web := ship("shop", "web", "10.0.0.1")
	k.expectOutput(true, web, words("apply -f -"), "serviceentry.networking.istio.io/web created")
	k.expectOutput(true, web, words("apply -f -"), "web unchanged")
	k.expectOutput(false, web, words("create -f -"), "AlreadyExists")
	k.expectOutput(true, strings.Replace(web, "10.0.0.1", "10.0.0.2", 1), words("apply -f -"), "web configured")
	k.expectOutput(true, strings.Replace(web, "10.0.0.1", "10.0.0.2", 1), words("replace -f -"), "web replaced")
	k.expectOutput(true, "", words("get se web -o yaml"), "10.0.0.2", "generation: 2")
	k.expectOutput(true, "", words("wait --for=condition=Accepted se/web --timeout=30s"), "web condition met")
	k.expectOutput(true, "", words("describe se web"), "Observed Generation:")

	unnamed := regexp.MustCompile(`\bname: web\b`).ReplaceAllString(web, "generateName: web-")
	var names []string
	for range 2 {
		out := k.expectOutput(true, unnamed, words("create -f - -o name"))
		found := regexp.MustCompile(`(?m)^serviceentry\.networking\.istio\.io/(web-\S+)$`).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("no name in %s", out)
		}
		names = append(names, found[1])
	}
	if names[0] == names[1] {
		t.Errorf("both are %s", names[0])
	}
	k.expectOutput(true, "", words("get se -o name"), "/web\n", "/"+names[0]+"\n", "/"+names[1]+"\n")
	k.expectOutput(true, "", append(words("delete se"), names...), `"`+names[1]+`" deleted`)
	k.expectOutput(true, web, words("delete -f -"), `"web" deleted`)
	k.expectOutput(true, "", words("get se"), "No resources found")
}
