package main

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
)

var secondsAgo = regexp.MustCompile(`\t\d+s ago`)

// TestCompletion: a shell offers what the server returns, and nothing while the server is
// away.
func TestCompletion(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, nil, func(s *rest.Server) {
		s.Endpoint("GET "+admin.ProxiesPath, func(w http.ResponseWriter, _ *http.Request) error {
			rest.WriteJSON(w, http.StatusOK, admin.ProxyList{Items: []progress.ProxyStatus{
				{Name: "edge-1", Type: "router", Namespace: "edge"}, {Name: "vm-17", Type: "sidecar", Namespace: "shop"},
			}})
			return nil
		})
		s.Endpoint("GET "+admin.ServicesPath, func(w http.ResponseWriter, _ *http.Request) error {
			rest.WriteJSON(w, http.StatusOK, admin.ServiceNames{Items: []admin.ServiceName{{Hostname: "reviews.shop", Namespace: "shop"}}})
			return nil
		})
		s.Endpoint("GET "+serve.SourcesPath, func(w http.ResponseWriter, _ *http.Request) error {
			rest.WriteJSON(w, http.StatusOK, serve.SourceList{Items: []serve.SourceStatus{{Name: "store"}, {Name: "/etc/mesh"}}})
			return nil
		})
	}))
	a.Must(t, clitest.Entry("x", "")+"---\n"+clitest.Entry("z", "")+"---\n"+clitest.Entry("far", ", namespace: edge"), "apply", "-f", "-", "-m", "why")
	a.Must(t, clitest.Entry("x", ", labels: {a: b}"), "apply", "-f", "-")
	for _, name := range []string{"default", "edge"} { // as the leader makes them
		if made := a.Server.Do(t, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`); made.Code != 201 {
			t.Fatalf("%d %s", made.Code, made.Body)
		}
	}
	a.Must(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n", "apply", "-f", "-")
	a.Must(t, "", "secret", "generic", "door", "--from-file", "key=complete_test.go")
	const names, pieces, ordered = ":4\n", ":6\n", ":36\n" // no file names; no blank behind; keep the order
	for line, want := range map[string]string{
		"delete se x ":                 "z\n" + names,
		"get se -n edge ":              "far\n" + names,
		"get se/":                      "se/x\nse/z\n" + names,
		"describe se/edge/":            "se/edge/far\n" + names,
		"get frobs ":                   names,
		"get vs -o ":                   "table\nwide\nyaml\njson\nname\n" + names,
		"get vs -o cus":                "custom-columns=\ncustom-columns-file=\n" + pieces,
		"get vs -o jsonpath-f":         "jsonpath-file=\n" + pieces,
		"edit se/":                     "se/x\nse/z\n" + names,
		"label se x ":                  "z\n" + names,
		"annotate se -n edge ":         "far\n" + names,
		"patch se/edge/":               "se/edge/far\n" + names,
		"patch se/x --type ":           "merge\njson\nstrategic\n" + names,
		"edit -n ":                     "default\nedge\n" + names,
		"wait se/x --for ":             "condition=\njsonpath=\ncreate\ndelete\n" + pieces,
		"get se -n ":                   "default\nedge\n" + names,
		"apply --namespace ":           "default\nedge\n" + names,
		"proxy status ":                "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"proxy config cluster ":        "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"proxy diff vm-17 ":            names,
		"proxy log ":                   "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"proxy top ":                   "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"proxy top --sort-by ":         "bytes\npushes\nack\nrefusals\nname\n" + names,
		"proxy disconnect ":            "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"proxy log vm-17 -n ":          "default\nedge\n" + names,
		"dns resolve ":                 "reviews.shop\tof namespace shop\n" + names,
		"dns resolve a --from ":        "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"describe service ":            "reviews.shop\tof namespace shop\n" + names,
		"explain request --to ":        "reviews.shop\tof namespace shop\n" + names,
		"source describe ":             "store\n/etc/mesh\n" + names,
		"get cm ":                      "settings\n" + names,
		"label configmap/":             "configmap/settings\n" + names,
		"delete namespace ":            "default\nedge\n" + names,
		"patch ns/":                    "ns/default\nns/edge\n" + names,
		"edit cm ":                     "settings\n" + names,
		"events --for se/":             "se/x\nse/z\n" + names,
		"secret read ":                 "door\n" + names,
		"secret tls ":                  "door\n" + names,
		"user delete ":                 names,
		"token revoke ":                names,
		"explain request --from ":      "edge-1\trouter of namespace edge\nvm-17\tsidecar of namespace shop\n" + names,
		"diff se/x --from ":            "3\t0s ago: serviceentry/default/x configured\n2\t0s ago: serviceentry/default/x created why\n" + ordered,
		"rollback se z --to-revision ": "2\t0s ago: serviceentry/default/z created why\n" + ordered,
		"get se -n edge --revision ":   "2\t0s ago: serviceentry/edge/far created why\n" + ordered,
		"wait --revision ":             "4\t0s ago: secret/default/door created\n3\t0s ago: serviceentry/default/x configured\n2\t0s ago: 3 objects created why\n" + ordered,
	} {
		words := append([]string{"--server", a.URL, "__complete"}, strings.Split(line, " ")...)
		clitest.Same(t, line, secondsAgo.ReplaceAllString(do(t, "", words...).Out, "\t0s ago"), want)
		words[1] = "http://127.0.0.1:1"
		if slices.ContainsFunc([]string{"get vs -o", "patch se/x --type", "wait se/x --for", "proxy top --sort-by"}, func(fixed string) bool { return strings.HasPrefix(line, fixed) }) {
			continue
		}
		if o := do(t, "", words...); !strings.HasPrefix(o.Out, ":") || strings.Contains(o.Err, "No server") || strings.Contains(o.Err, "reach") {
			t.Errorf("%s without a server: %+v", line, o)
		}
	}
	if out := do(t, "", "__complete", "get", "").Out; !strings.Contains(out, "virtualservices\tvs\n") {
		t.Errorf("kinds: %s", out)
	}
	if out := do(t, "", "__complete", "export", "").Out; !strings.Contains(out, "gateways\tgw\n") {
		t.Errorf("kinds: %s", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := do(t, "", "completion", shell); out.Code != exit.OK || out.Out == "" {
			t.Errorf("%+v", out)
		}
	}
}
