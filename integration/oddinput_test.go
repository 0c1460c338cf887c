package integration

import (
	"slices"
	"strings"
	"testing"
)

// TestOddInputIsWarnedOf: objects that are valid, but odd together with others, are accepted as
// by Istio. apply warns of what is odd, also in a dry run.
func TestOddInputIsWarnedOf(t *testing.T) {
	s := startServer(t, serverOptions{})
	object := func(kind, name, spec string) string {
		return "---\napiVersion: networking.istio.io/v1\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: shop}\nspec: {" + spec + "}\n"
	}
	const http = "ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC"
	s.must(object("ServiceEntry", "first", "hosts: [a.example], addresses: [10.1.0.1], endpoints: [{address: 10.0.0.1}], "+http), "apply", "-f", "-")
	odd := object("ServiceEntry", "second", "hosts: [a.example], endpoints: [{address: 10.0.0.2}], "+http) +
		object("ServiceEntry", "third", "hosts: [c.example], addresses: [10.1.0.0/24], endpoints: [{address: 10.0.0.3}], "+http) +
		object("ServiceEntry", "fourth", "hosts: [d.example], workloadSelector: {labels: {app: nobody}}, "+http) +
		object("ServiceEntry", "fifth", "hosts: [e.example], workloadSelector: {labels: {app: e}}, "+http) +
		object("WorkloadEntry", "one", "address: 10.0.0.5, labels: {app: e}, ports: {grpc: 81}")
	want := map[string][]string{
		"serviceentry/shop/second": {"spec.hosts[0]", "serviceentry/shop/first", "PTL0105"},
		"serviceentry/shop/third":  {"spec.addresses[0]", "serviceentry/shop/first", "PTL0106"},
		"serviceentry/shop/fourth": {"spec.workloadSelector", "app=nobody", "PTL0108, IST0127"},
		"workloadentry/shop/one":   {"spec.ports[grpc]", "PTL0109"},
	}
	for _, args := range [][]string{{"--dry-run=server"}, nil} {
		out := s.try(odd, append([]string{"apply", "-f", "-"}, args...)...)
		if out.code != 0 {
			t.Fatalf("%v: refused: %s", args, out.stderr)
		}
		lines := strings.Split(out.stderr, "\n")
		for name, words := range want {
			if !slices.ContainsFunc(lines, func(line string) bool {
				return (strings.HasPrefix(line, "Warning: "+name+": ") || strings.HasPrefix(line, "Info: "+name+": ")) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
			}) {
				t.Errorf("%v: no warning of %s that says %q:\n%s", args, name, words, out.stderr)
			}
		}
	}
}
