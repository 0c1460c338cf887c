package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const checkedWorkload = `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata:
  name: vm
  namespace: shop
  labels: {app: web}
  annotations: {proxy.istio.io/health-checks-enabled: "true"}
spec: {address: 10.0.0.1}
`

const proberRole = `
apiVersion: portolan.io/v1
kind: Role
metadata: {name: prober, namespace: istio-system}
spec:
  rules:
  - {verbs: [update], kinds: [workloadentries/status]}
---
apiVersion: portolan.io/v1
kind: Role
metadata: {name: lister, namespace: istio-system}
spec:
  rules:
  - {verbs: [get, list, update], kinds: [serviceentries, secrets]}
`

// TestAttacksOnTheServer: a user does over the API of a server what the roles of the user permit:
// the status of objects, what servers alone write and what comes from files are attacked, too. What
// is refused changes nothing. (Package credentials has the other attacks.)
func TestAttacksOnTheServer(t *testing.T) {
	t.Parallel()
	dir := newConfigDir(t, map[string]string{"files.yaml": strings.ReplaceAll(plainEntry("filed"), "namespace: shop", "namespace: docs")})
	s := startServer(t, serverOptions{args: []string{"--config-dir", dir.path}})
	s.apply(checkedWorkload, proberRole, plainEntry("mine"))
	tokens := map[string]string{}
	user := func(name, role string, more ...string) {
		tokens[name] = strings.TrimSpace(s.must("", append([]string{"user", "create", name, "--role", role}, more...)...))
	}
	user("boss", "admin")
	for name, role := range map[string]string{"viewer": "viewer", "editor": "editor", "prober": "prober", "lister": "lister"} {
		user(name, role, "-n", "shop", "--token", tokens["boss"])
	}
	send := func(user, method, path, media, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url(path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			r.Header.Set("Authorization", "Bearer "+tokens[user])
		}
		if r.Header.Set("Content-Type", "application/"+media); media == "" {
			r.Header.Del("Content-Type")
		}
		response, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	const (
		vm      = "/apis/networking.istio.io/v1/namespaces/shop/workloadentries/vm"
		state   = vm + "/status"
		records = "/apis/portolan.io/v1/records?limit=1&objects=false&kind="
		secrets = "/api/v1/namespaces/istio-system/secrets"
		phases  = "/apis/portolan.io/v1/namespaces/shop/peerphases"
		docs    = "/apis/networking.istio.io/v1/namespaces/docs/serviceentries"
		merge   = "merge-patch+json"
		ops     = "json-patch+json"
		apply   = "apply-patch+yaml"
		object  = `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":"vm"},"status":{"conditions":[`
		sick    = `{"type":"Healthy","status":"False","message":"m"}`
		forged  = `{"type":"Stalled","status":"True","message":"forged"}`
	)
	changes := func() (out string) { // the newest of each kind: refused attempts are recorded, too
		for _, kind := range []string{"WorkloadEntry", "ServiceEntry", "Secret", "PeerPhase"} {
			code, text := send("boss", "GET", records+kind, "", "")
			if code != 200 {
				t.Fatalf("%d %s", code, text)
			}
			out += text
		}
		return out
	}
	for _, c := range []struct {
		user, method, path, media, body string
		code                            int
		says                            string
	}{
		// The status of an object.
		{"", "PUT", state, "json", object + sick + "]}}", 401, ""},
		{"viewer", "PUT", state, "json", object + sick + "]}}", 403, "workloadentries/status"},
		{"viewer", "PATCH", state, merge, `{"status":{"conditions":[` + sick + `]}}`, 403, ""},
		{"viewer", "PATCH", state + "?fieldManager=x&force=true", apply, object + sick + "]}}", 403, ""},
		{"lister", "PUT", state, "json", object + sick + "]}}", 403, ""},
		{"prober", "GET", vm, "", "", 403, ""},
		{"prober", "PATCH", vm, merge, `{"spec":{"address":"10.0.0.66"}}`, 403, ""},
		{"prober", "DELETE", vm, "", "", 403, ""},
		{"prober", "PUT", strings.Replace(state, "shop", "blog", 1), "json", object + sick + "]}}", 403, ""},
		{"prober", "PUT", state, "json", object + `{"type":"Ready","status":"Perhaps"}` + "]}}", 422, "use True, False or Unknown"},
		{"prober", "PATCH", strings.Replace(state, "workloadentries/vm", "serviceentries/a", 1), ops, `[{"op":"add","path":"/status","value":{"conditions":[{"type":"Mine","status":"True"}]}}]`, 403, "serviceentries/status"},
		{"prober", "PATCH", state, merge, `{"metadata":{"uid":"other"},"status":{"conditions":[` + sick + `]}}`, 409, ""},
		{"prober", "PATCH", state, merge, `{"metadata":{"resourceVersion":"1"},"status":{"conditions":[` + sick + `]}}`, 409, ""},
		{"prober", "PUT", state + "?dryRun=All", "json", object + sick + "]}}", 200, ""},
		{"editor", "PUT", vm + "/scale", "json", object + sick + "]}}", 404, ""},
		// What servers alone write.
		{"boss", "POST", phases, "json", `{"apiVersion":"portolan.io/v1","kind":"PeerPhase","metadata":{"name":"x"},"spec":{}}`, 0, ""},
		{"boss", "POST", secrets, "json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"portolan-ca"},"stringData":{"a":"b"}}`, 403, "servers alone write"},
		{"boss", "PATCH", secrets + "/portolan-ca?fieldManager=x&force=true&dryRun=All", apply, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"portolan-ca"},"data":{"a":"Yg=="}}`, 403, "servers alone write"},
		{"editor", "GET", secrets + "/portolan-ca", "", "", 403, ""},
		{"boss", "DELETE", "/api/v1/namespaces/istio-system", "", "", 403, "not deleted"},
		{"boss", "DELETE", "/api/v1/namespaces/istio-system?dryRun=All", "", "", 403, "not deleted"},
		// What comes from files.
		{"boss", "PATCH", docs + "/filed", merge, `{"metadata":{"labels":{"a":"b"}}}`, 405, "files.yaml"},
		{"boss", "DELETE", docs + "/filed", "", "", 405, "files.yaml"},
		{"editor", "DELETE", docs + "/filed", "", "", 403, ""},
		// Who is not let in.
		{"", "GET", "/openapi/v3", "", "", 401, ""},
		{"", "GET", "/apis", "", "", 401, ""},
		{"", "GET", "/apis/portolan.io/v1/proxies", "", "", 401, ""},
		{"viewer", "GET", "/apis/portolan.io/v1/store/snapshot", "", "", 403, ""},
		{"editor", "GET", "/debug/pprof/heap", "", "", 403, ""},
		{"", "GET", "/healthz", "", "", 200, "ok"},
	} {
		before := changes()
		code, told := send(c.user, c.method, c.path, c.media, c.body)
		what := c.user + " " + c.method + " " + c.path + " " + c.body
		if code != c.code && (c.code != 0 || code < 400) || !strings.Contains(told, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", what, code, told, c.code, c.says)
		}
		if after := changes(); after != before {
			t.Errorf("%s changed something: %s", what, after)
		}
	}
	// The right to the status is one to the status alone, and conditions of servers stay theirs.
	code, told := send("prober", "PUT", state, "json", strings.Replace(object, `"metadata":{"name":"vm"}`, `"metadata":{"name":"vm","labels":{"app":"other"}},"spec":{"address":"10.0.0.66"}`, 1)+sick+","+forged+"]}}")
	if code != 200 || !strings.Contains(told, `"status":"False"`) {
		t.Errorf("the status: %d %s", code, told)
	}
	code, told = send("editor", "PATCH", vm, merge, `{"metadata":{"labels":{"b":"c"}},"status":{"conditions":[`+forged+`]}}`)
	if code != 200 {
		t.Errorf("an editor: %d %s", code, told)
	}
	now := s.must("", "get", "workloadentry/vm", "-n", "shop", "-o", "yaml", "--token", tokens["boss"])
	for _, want := range []string{"address: 10.0.0.1\n", "app: web", "type: Healthy", "b: c"} {
		if !strings.Contains(now, want) {
			t.Errorf("%q is missing: %s", want, now)
		}
	}
	for _, never := range []string{"10.0.0.66", "forged", "app: other"} {
		if strings.Contains(now, never) {
			t.Errorf("it has %q: %s", never, now)
		}
	}
}
