package objects

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// words splits a command line as a shell does: at blanks, but not within single or double quotes.
func words(text string) []string {
	var out []string
	var word strings.Builder
	quote := rune(0)
	for _, r := range text + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case quote == 0 && r == ' ':
			if word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	return out
}

// TestExamplesOfVerbsRun: the examples in the help of the commands that change, make and print objects
// run, each with a shop of its own. Those that go on, wait for proxies or are several commands are
// left out.
func TestExamplesOfVerbsRun(t *testing.T) {
	t.Chdir(clitest.Write(t, map[string]string{
		"new.yaml": clitest.Entry("new", ", namespace: shop"), "new/a.yaml": clitest.Entry("new", ", namespace: shop, labels: {app: shop}"),
		"patch.yaml":                       "spec: {exportTo: [.]}\n",
		"overlays/prod/kustomization.yaml": "resources: [x.yaml]\n",
		"overlays/prod/x.yaml":             clitest.Entry("x", ""),
		"stored.yaml":                      clitest.Entry("reviews", ", namespace: shop, labels: {app: reviews}") + "---\n" + clitest.Entry("old", ", namespace: shop") + routes,
	}))
	editors(t, "s/app: reviews/app: others/")
	var out bytes.Buffer
	root := cli.NewRootCommand(&cli.Environment{Stdout: &out, Stderr: &out, Schemas: schema.Pilot()}, cli.Program(line))
	for _, name := range []string{"edit", "label", "annotate", "patch", "create", "replace", "get", "delete", "apply", "events"} {
		c, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, text := range strings.Split(c.Example, "\n") {
			args := words(strings.ReplaceAll(text, "shop.yaml", "new.yaml"))
			if slices.Contains([]string{"replace", "delete", "label", "annotate"}, name) {
				args = words(strings.ReplaceAll(text, "shop.yaml", "stored.yaml"))
			}
			args = args[slices.Index(args, "portolan")+1:]
			if args[0] != name || strings.ContainsAny(text, "|&") || strings.Contains(text, "https:") ||
				slices.ContainsFunc([]string{"-w", "--wait", "--xds", "--revision", "--min-revision"}, func(flag string) bool { return slices.Contains(args, flag) }) {
				continue
			}
			for i, arg := range args {
				if arg == "shop/" {
					args[i] = "new"
				}
			}
			start := startAPI
			if slices.Contains(args, "--subresource=status") {
				start = startWithStatuses
			}
			a := start(t)
			a.Must(t, "", "apply", "-f", "stored.yaml")
			if name == "delete" && slices.Contains(args, "-f") {
				a.Must(t, "", "apply", "-f", "new.yaml")
			}
			if slices.Contains(args, "namespace") { // the leader makes it
				a.Server.Do(t, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
			}
			if name == "delete" && slices.Contains(args, "namespace") {
				args = append(args, "--yes")
			}
			if o := a.Do(t, "", args...); o.Code != exit.OK {
				t.Errorf("%s: %+v", text, o)
			}
			ran++
		}
		if ran < 1 {
			t.Errorf("%s: no example ran", name)
		}
	}
}

const routes = `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop, labels: {app: reviews}}
spec: {hosts: [reviews.shop], http: [{timeout: 1s, directResponse: {status: 404}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings, namespace: shop}
spec: {hosts: [ratings.shop], http: [{directResponse: {status: 404}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop, labels: {app: reviews}}
spec: {host: reviews.shop}
`
