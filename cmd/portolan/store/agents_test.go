package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/progress"
)

func TestProblemsOfAgents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server, agent, want string // want is empty for no problem
	}{
		"the same":               {"1.4.0", "1.4.2", ""},
		"one older":              {"1.4.0", "1.3.9", ""},
		"two older":              {"1.4.0", "1.2.0", "more than one minor version older"},
		"an older major version": {"2.0.0", "1.9.0", "more than one minor version older"},
		"one newer":              {"v1.4.0", "v1.5.0", "newer than the server"},
		"a newer major version":  {"1.4.0", "2.0.0", "newer than the server"},
		"a newer patch":          {"1.4.0", "1.4.9", ""},
		"an agent of no release": {"1.4.0", "4a6bb4e1", ""},
		"a server of no release": {"4a6bb4e1", "1.2.0", ""},
	} {
		got := problemsOfAgents(c.server, map[string]int{c.agent: 2})
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want) || !strings.HasPrefix(got[0], "2 agents of version "+c.agent)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDescribeAgents(t *testing.T) {
	t.Parallel()
	proxy := func(id, version string) progress.ProxyStatus {
		return progress.ProxyStatus{Node: id, Machine: &node.Facts{Agent: version}}
	}
	got := describeAgents(agentsOf([]progress.ProxyStatus{proxy("a", "1.4.0"), proxy("a", "1.4.0"), proxy("b", "1.4.0"), proxy("c", "4a6b"), proxy("d", ""), {Node: "e"}}))
	if want := "2 of 1.4.0; 1 of 4a6b, not a release"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := describeAgents(nil); got != "none is connected" {
		t.Error(got)
	}
	if !slices.Equal(problemsOfAgents("1.4.0", nil), nil) {
		t.Error("no agents are a problem")
	}
}
