package proxies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

func someSources() serve.SourceList {
	changed, lag := time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), 0.25
	return serve.SourceList{Items: []serve.SourceStatus{
		{Name: "store", Kind: "etcd", Where: "/tmp/mesh", Writable: true, Objects: map[string]int{"Gateway": 1, "ServiceEntry": 2}, LagSeconds: &lag},
		{Name: "mesh", Kind: "directory", Where: "mesh", Objects: map[string]int{"ServiceEntry": 3}, Shadowed: 1, Changed: &changed, Faults: []string{"a.yaml: is empty", "b.yaml: is odd"}, Refused: 1},
		{Name: "gone", Kind: "directory", Where: "gone", Problem: "there is no such directory", Faults: []string{"b.yaml: is empty"}},
		{Name: "kube://east", Kind: "cluster", Where: "https://east", Problem: "the account bob may not list 2 resources", Details: []string{"bob may not list pods", "bob may not list nodes"}},
		{Name: "targets.json", Kind: "endpoints file", Where: "/etc/targets.json", Endpoints: &serve.EndpointsStatus{Services: 2, Targets: 5}, Faults: []string{"targets.json: group 1: x"}},
	}}
}

// answerSources answers the requests of describe: for the sources, and for the objects of one.
func answerSources(r *http.Request) any {
	if r.URL.Path != serve.SourceObjectsPath {
		return someSources()
	}
	if r.URL.Query().Get("name") != "mesh" {
		return serve.SourceObjects{}
	}
	objects := serve.SourceObjects{Items: []serve.SourceObject{
		{Kind: "ServiceEntry", Namespace: "shop", Name: "a", Place: "a.yaml: document 1 (line 1)"},
		{Kind: "ServiceEntry", Namespace: "shop", Name: "aa", Issues: []string{"PTL0101", "PTL9999"}},
		{Kind: "ServiceEntry", Namespace: "shop", Name: "b", ShadowedBy: "store", Faults: []string{"x", "y"}, Refused: 2},
	}}
	for i := range 105 {
		objects.Items = append(objects.Items, serve.SourceObject{Kind: "Sidecar", Namespace: "shop", Name: fmt.Sprint("s", i)})
	}
	return objects
}

func TestSourceList(t *testing.T) {
	t.Parallel()
	var asked string
	out, err := serving(t, func(r *http.Request) any { asked = r.URL.Path; return someSources() }, "source", "list")
	if err != nil || asked != serve.SourcesPath {
		t.Fatalf("%v after %s", err, asked)
	}
	for _, line := range [][]string{
		{"NAME", "KIND", "OBJECTS", "SHADOWED", "CHANGED", "STATE"}, {"store", "etcd", "3", "0", "-", "ok"},
		{"mesh", "directory", "3", "1", "1 fault, 1 warning"}, {"gone", "directory", "0", "0", "-", "1 warning; there is no such directory"},
		{"targets.json", "endpoints file", "2 services", "-", "-", "1 warning"},
	} {
		if !clitest.HasLine(out.Out, line) {
			t.Errorf("no line with %q in\n%s", line, out.Out)
		}
	}
	out, err = serving(t, func(*http.Request) any { return someSources() }, "source", "list", "-o", "json")
	if err != nil || !strings.Contains(out.Out, `"shadowed": 1`) {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

func TestSourceDescribe(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][][]string{
		"store": {{"writable", "yes"}, {"lag", "0.2 s"}, {"Gateway", "1"}, {"ServiceEntry", "2"}},
		"mesh": {{"where", "mesh"}, {"writable", "no: change it at its source"}, {"shadowed", "1"}, {"OBJECT", "PLACE", "STATE"},
			{"serviceentry/shop/a", "a.yaml: document 1 (line 1)", "ok"}, {"serviceentry/shop/aa", "-", "error PTL0101, PTL9999"}, {"serviceentry/shop/b", "-", "shadowed by store, 2 faults"}, {"state", "1 fault, 1 warning"},
			{"sidecar/shop/s99"}, {"sidecar: 5 more"}, {"! a.yaml: is empty"},
		},
		"kube://east":  {{"state", "the account bob may not list 2 resources"}, {"! bob may not list pods"}, {"! bob may not list nodes"}},
		"gone":         {{"! there is no such directory"}, {"! b.yaml: is empty"}},
		"targets.json": {{"where", "/etc/targets.json"}, {"services", "2"}, {"targets", "5"}, {"! targets.json: group 1: x"}},
	} {
		out, err := serving(t, answerSources, "source", "describe", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, line := range lines {
			if !clitest.HasLine(out.Out, line) {
				t.Errorf("no line with %q in\n%s", line, out.Out)
			}
		}
	}
	if out, err := serving(t, answerSources, "source", "describe", "mesh", "-o", "yaml"); err != nil || !clitest.HasLine(out.Out, []string{"name: s104"}) || !clitest.HasLine(out.Out, []string{"shadowed: 1"}) {
		t.Errorf("%v\n%s", err, out.Out)
	}
	if _, err := serving(t, answerSources, "source", "describe", "none"); err == nil || !strings.Contains(err.Error(), "see portolan source list") {
		t.Errorf("of none: %v", err)
	}
}
