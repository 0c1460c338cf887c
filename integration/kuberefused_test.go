package integration

import (
	"fmt"
	"regexp"
	"testing"
)

// TestKubernetesRefusedAfterRestart: a server restarts while its cluster has an object that it refuses. It
// serves what the object was before, and all commands about it say so.
func TestKubernetesRefusedAfterRestart(t *testing.T) {
	k := &kubeCluster{t, startKubeAPIServer(t, needKubeAPIServer(t))}
	k.entry("one")
	k.must("POST", virtualServices, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"web"},
		"spec":{"hosts":["one.example"],"http":[{"timeout":"6s","route":[{"destination":{"host":"one.example"}}]}]}}`)
	file := kubeconfig(t, `server: "`+k.api.url+`", certificate-authority: "`+k.api.ca+`"`, "{token: "+followerToken+"}")
	s := startServer(t, serverOptions{args: []string{"--config-kube", file, "--write-status"}})
	const name = "kube://mesh"
	s.awaitSource(name, "", 2)
	s.awaitMetric(`portolan_leader{job="server"}`, "1") // it saves what it knows when it ends
	refuse := func(host string) {
		t.Helper()
		merge := map[string]string{"Content-Type": "application/merge-patch+json"}
		if code, _, text, err := k.api.do(t.Context(), "PATCH", virtualServices+"/web", fmt.Sprintf(`{"spec":{"hosts":[%q]}}`, host), merge); err != nil || code != 200 {
			t.Fatalf("%d %s %v", code, text, err)
		}
	}
	shows := func(host string) {
		t.Helper()
		k.condition("virtualservices", "web", "Accepted", "False", "(what it held before is served)")
		for _, one := range []struct {
			code    int
			pattern string
			args    []string
		}{
			{0, `(?s)NOT SERVED AS IT STANDS IN ITS SOURCE.*` + regexp.QuoteMeta(host), []string{"describe", "virtualservice", "web", "-n", "shop"}},
			{0, regexp.QuoteMeta(host) + `.* \(what it held before is served\)`, []string{"source", "describe", name}},
			{0, `timeout: 6s`, []string{"get", "virtualservice", "web", "-n", "shop", "-o", "yaml"}},
			{1, regexp.QuoteMeta(host), []string{"wait", "virtualservice/web", "-n", "shop"}},
		} {
			eventually(t, fmt.Sprint(one.args), func() error {
				out := s.try("", one.args...)
				if (out.code == 0) != (one.code == 0) || !regexp.MustCompile(one.pattern).MatchString(out.stdout+out.stderr) {
					return fmt.Errorf("%+v", out)
				}
				return nil
			})
		}
	}
	refuse("a..example")
	shows("a..example")
	for _, host := range []string{"a..example", "b..example"} {
		if err := s.process.terminate(t); err != nil {
			t.Fatal(err)
		}
		refuse(host)
		s.start()
		shows(host)
	}
	refuse("c..example")
	shows("c..example")

	// The health of a workload is no word that anybody knows.
	entries := "/apis/networking.istio.io/v1/namespaces/shop/workloadentries"
	k.must("POST", entries, `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":"vm","annotations":{"proxy.istio.io/health-checks-enabled":"true"}},"spec":{"address":"10.0.0.7"}}`)
	merge := map[string]string{"Content-Type": "application/merge-patch+json"}
	if code, _, text, err := k.api.do(t.Context(), "PATCH", entries+"/vm/status", `{"status":{"conditions":[{"type":"Healthy","status":"yes"}]}}`, merge); err != nil || code != 200 {
		t.Fatalf("%d %s %v", code, text, err)
	}
	for _, args := range [][]string{{"describe", "workloadentry", "vm", "-n", "shop"}, {"analyze", "-n", "shop", "--failure-threshold", "error"}, {"source", "describe", name}} {
		eventually(t, fmt.Sprint(args), func() error {
			if out := s.try("", args...); out.code != 0 || !regexp.MustCompile(`Healthy (of its status )?is "yes"`).MatchString(out.stdout) {
				return fmt.Errorf("%+v", out)
			}
			return nil
		})
	}
}
