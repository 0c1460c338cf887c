package integration

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// route returns a VirtualService of the namespace shop that sends a host to itself.
func route(name, labels string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":%q,"namespace":"shop","labels":{%s}},`+
		`"spec":{"hosts":["%s.shop"],"http":[{"route":[{"destination":{"host":"web.shop"}}]}]}}`, name, labels, name)
}

// row matches the row of a table that has certain cells.
func row(cells ...string) string { return `(?m)^` + strings.Join(cells, ` +`) + ` *$` }

// TestKubectlReads: kubectl prints the tables of the server, selects, reads in chunks, watches
// and discovers, as in a cluster with Istio.
func TestKubectlReads(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	words := func(line string) []string { return strings.Fields(line) }
	s.apply(ship("shop", "web", "10.0.0.1") + "---\n" + route("a", `"app":"web"`) + "\n---\n" + route("b", `"app":"db"`) + "\n---\n" + route("c", "") +
		"\n---\n" + `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"web","namespace":"shop"},"spec":{"host":"web.shop","subsets":[{"name":"v1"}]}}`)
	age := `[0-9]+s`
	for line, want := range map[string][]string{
		"get vs":                          {row("NAME", "GATEWAYS", "HOSTS", "AGE"), row("a", "mesh", `a\.shop`, age), row("c", "mesh", `c\.shop`, age)},
		"get vs a":                        {row("a", "mesh", `a\.shop`, age)},
		"get vs -o wide":                  {row("NAME", "GATEWAYS", "HOSTS", "AGE", "REV", "PROGRAMMED", "ISSUES", "SOURCE", "ROUTES", "EXPORT-TO"), `(?m)^a .* http=1`},
		"get vs,dr":                       {row("NAME", "GATEWAYS", "HOSTS", "AGE"), row("NAME", "HOST", "AGE"), row(`destinationrule\.networking\.istio\.io/web`, `web\.shop`, age)},
		"get vs --chunk-size=2":           {row("a", ".*"), row("b", ".*"), row("c", ".*")},
		"get vs --show-labels":            {row("a", ".*", "app=web"), row("c", ".*", "<none>")},
		"get vs --sort-by=.metadata.name": {row("b", ".*")},
		"get all":                         {`virtualservice\.networking\.istio\.io/a`, `serviceentry\.networking\.istio\.io/web`, `destinationrule\.networking\.istio\.io/web`},
		"get istio-io":                    {`virtualservice\.networking\.istio\.io/a`},
		"get se":                          {row("NAME", "HOSTS", "LOCATION", "RESOLUTION", "AGE"), `(?m)^web .* STATIC`},
		"get vs a -o yaml":                {`(?m)^kind: VirtualService$`},
		"get vs -o name":                  {`(?m)^virtualservice\.networking\.istio\.io/c$`},
		"api-resources":                   {`(?m)^virtualservices +vs +networking\.istio\.io/v1 +true +VirtualService$`},
		"api-resources -o wide":           {`create,delete,deletecollection,get,list,patch,update,watch +portolan,istio-io,networking-istio-io,all`},
		"version":                         {`Server Version: v`},
		"get --raw /readyz?verbose":       {`\[\+\] store ok\n`, `ready\n`},
		"get --raw /livez":                {`^ok\n`},
		"get --raw /readyz/store":         {`^ok\n`},
	} {
		out := k.expectOutput(true, "", words(line))
		for _, pattern := range want {
			if !regexp.MustCompile(pattern).MatchString(out) {
				t.Errorf("kubectl %s: nothing matches %s: %s", line, pattern, out)
			}
		}
	}
	for line, want := range map[string]string{
		"-l app=web": "a", "-l app!=web": "b c", "-l app": "a b", "--field-selector metadata.name=b": "b", "--field-selector metadata.name!=b": "a c",
		"--field-selector metadata.namespace==shop,metadata.name!=a": "b c",
	} {
		out := k.expectOutput(true, "", append(words("get vs --no-headers -o custom-columns=N:.metadata.name"), words(line)...))
		if got := strings.Join(strings.Fields(out), " "); got != want {
			t.Errorf("kubectl get vs %s: %q, want %q", line, got, want)
		}
	}
	k.expectOutput(false, "", words("get vs --field-selector spec.hosts=a"), "select by metadata.name or metadata.namespace")
}

// TestKubectlWatches: kubectl get -w prints what is there, and one row for each change.
func TestKubectlWatches(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	s.apply(ship("shop", "web", "10.0.0.1") + "---\n" + route("a", ""))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, k.path, append(strings.Fields("get vs -w"), k.args...)...)
	c.Env = []string{"HOME=" + k.home, "KUBECONFIG=" + os.DevNull}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, pattern := range []string{row("NAME", "GATEWAYS", "HOSTS", "AGE"), row("a", "mesh", `a\.shop`, `[0-9]+s`), row("b", "mesh", `b\.shop`, `[0-9]+s`)} {
		for {
			if !lines.Scan() {
				t.Fatalf("kubectl get -w ended before %s: %v", pattern, lines.Err())
			}
			if regexp.MustCompile(pattern).MatchString(lines.Text()) {
				break
			}
			if strings.HasPrefix(lines.Text(), "b ") {
				t.Fatalf("%q, and not %s", lines.Text(), pattern)
			}
		}
		if strings.Contains(pattern, "^a ") {
			s.apply(route("b", ""))
		}
	}
	cancel()
	_ = c.Wait() // it was ended
}

// TestKubectlMakesSecrets: kubectl create secret works, with the protobuf that it sends.
func TestKubectlMakesSecrets(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	words := func(line string) []string { return strings.Fields(line) }
	pair := secrettest.New(t, time.Hour, "web.example")
	dir := t.TempDir()
	for name, content := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.expectOutput(true, "", words("create secret tls web --cert "+dir+"/tls.crt --key "+dir+"/tls.key"), "secret/web created")
	k.expectOutput(true, "", words("create secret generic word --from-literal=key=swordfish"), "secret/word created")
	k.expectOutput(false, "", words("create secret generic word --from-literal=key=other"), "already exists")
	out := k.expectOutput(true, "", words("get secrets"))
	for _, pattern := range []string{row("NAME", "TYPE", "ENTRIES", "AGE"), row("web", `kubernetes\.io/tls`, `tls\.crt,tls\.key`, `[0-9]+s`), row("word", "Opaque", "key", `[0-9]+s`)} {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("nothing matches %s: %s", pattern, out)
		}
	}
	k.expectOutput(true, "", words("get secrets --field-selector type=Opaque -o name"), "secret/word\n")
	if all := k.expectOutput(true, "", words("get secrets -o yaml")); strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("swordfish"))) {
		t.Errorf("the data of a secret: %s", all)
	}
	if got := s.must("", "secret", "read", "word", "key", "-n", "shop"); got != "swordfish" {
		t.Errorf("the stored secret is %q", got)
	}
	k.expectOutput(true, "", words("delete secret web word"), `"web" deleted`)
}
