package peer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
)

// policies returns PeerAuthentications, given as NAMESPACE/NAME: SPEC, each older than the
// next.
func policies(t *testing.T, documents ...string) map[string]*peer.Policies {
	t.Helper()
	out := map[string]*peer.Policies{}
	for age, text := range documents {
		key, spec, _ := strings.Cut(text, ": ")
		namespace, name, _ := strings.Cut(key, "/")
		decoded, err := config.Decode("test", []byte("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: "+name+", namespace: "+namespace+"}\nspec: "+spec+"\n"), schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		object := decoded[0].Config
		object.CreationTimestamp = time.Unix(int64(age), 0)
		out[namespace] = out[namespace].Replace(nil, object)
	}
	return out
}

// TestDecide: the nearest level that sets a mode decides, and of a level the oldest
// policy.
func TestDecide(t *testing.T) {
	t.Parallel()
	const (
		mesh      = "root/mesh: {mtls: {mode: STRICT}}"
		namespace = "shop/all: {mtls: {mode: DISABLE}}"
		web       = "shop/web: {selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: PERMISSIVE}, 9090: {}}}"
	)
	for name, c := range map[string]struct {
		policies []string
		port     int
		want     peer.Mode
		by       string
	}{
		"without any":             {nil, 80, peer.Permissive, ""},
		"of the mesh":             {[]string{mesh}, 80, peer.Strict, "mesh"},
		"of the namespace":        {[]string{mesh, namespace}, 80, peer.Disable, "all"},
		"of the workload":         {[]string{mesh, namespace, web}, 80, peer.Strict, "web"},
		"of a port":               {[]string{mesh, namespace, web}, 8080, peer.Permissive, "web"},
		"of a port that inherits": {[]string{mesh, namespace, web}, 9090, peer.Strict, "web"},
		"of all other ports":      {[]string{web}, 0, peer.Strict, "web"},
		"of a port of a workload that inherits": {
			[]string{mesh, "shop/web: {selector: {matchLabels: {app: web}}, portLevelMtls: {8080: {mode: DISABLE}}}"}, 8080, peer.Disable, "web"},
		"of a workload that inherits": {
			[]string{mesh, "shop/web: {selector: {matchLabels: {app: web}}, mtls: {mode: UNSET}}"}, 80, peer.Strict, "mesh"},
		"of a namespace that inherits":      {[]string{mesh, "shop/all: {}"}, 80, peer.Strict, "mesh"},
		"of a mesh that sets nothing":       {[]string{"root/mesh: {}"}, 80, peer.Permissive, ""},
		"of another workload":               {[]string{"shop/db: {selector: {matchLabels: {app: db}}, mtls: {mode: STRICT}}"}, 80, peer.Permissive, ""},
		"of a selector in the root":         {[]string{"root/web: {selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}"}, 80, peer.Permissive, ""},
		"of the oldest of a namespace":      {[]string{namespace, "shop/a: {mtls: {mode: STRICT}}"}, 80, peer.Disable, "all"},
		"of the oldest, which sets nothing": {[]string{"shop/z: {}", namespace}, 80, peer.Permissive, ""},
		"of the oldest of a workload": {
			[]string{web, "shop/a: {selector: {matchLabels: {version: v1}}, mtls: {mode: DISABLE}}"}, 80, peer.Strict, "web"},
	} {
		all := policies(t, c.policies...)
		got := peer.Scope{Mesh: all["root"], Own: all["shop"]}.Decide(labels.Instance{"app": "web", "version": "v1"}, c.port)
		by := ""
		if got.By != nil {
			by = got.By.Config.Name
		}
		if got.Mode != c.want || by != c.by {
			t.Errorf("%s: %s by %q, want %s by %q", name, got.Mode, by, c.want, c.by)
		}
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	all := policies(t, "shop/web: {selector: {matchLabels: {app: web}}, portLevelMtls: {9090: {}, 80: {mode: STRICT}}}", "shop/z: {selector: {matchLabels: {app: web}}, portLevelMtls: {81: {}}}")
	scope := peer.Scope{Own: all["shop"]}
	if got := scope.Ports(labels.Instance{"app": "web"}); !slices.Equal(got, []int{80, 9090}) {
		t.Errorf("%v", got)
	}
	if got := scope.Ports(nil); got != nil {
		t.Errorf("of no labels: %v", got)
	}
}

// TestPhases: servers take what the former policies ask for and what the new ones do, then clients
// follow the new ones, and then servers take that alone.
func TestPhases(t *testing.T) {
	t.Parallel()
	const strict, off = "shop/a: {mtls: {mode: STRICT}}", "shop/a: {mtls: {mode: DISABLE}}"
	settled := func(text ...string) []phase.Policy { return policies(t, text...)["shop"].Write() }
	digest := func(text string) string { return policies(t, text)["shop"].Digest() }
	for name, c := range map[string]struct {
		policies    string // none for an empty text
		stored      *phase.Peers
		phase       peer.Phase
		serve, call peer.Mode
		stale       bool
	}{
		"none":                        {},
		"new, and nobody has seen it": {policies: strict, phase: peer.ServersChange, serve: peer.Permissive, call: peer.Permissive},
		"new, clients may change":     {policies: strict, stored: &phase.Peers{Toward: digest(strict)}, phase: peer.ClientsChange, serve: peer.Permissive, call: peer.Strict},
		"settled":                     {policies: strict, stored: &phase.Peers{Settled: settled(strict)}, serve: peer.Strict, call: peer.Strict},
		"DISABLE to STRICT":           {policies: strict, stored: &phase.Peers{Settled: settled(off)}, phase: peer.ServersChange, serve: peer.Permissive, call: peer.Disable},
		"DISABLE to STRICT, clients":  {policies: strict, stored: &phase.Peers{Settled: settled(off), Toward: digest(strict)}, phase: peer.ClientsChange, serve: peer.Permissive, call: peer.Strict},
		"STRICT to DISABLE":           {policies: off, stored: &phase.Peers{Settled: settled(strict)}, phase: peer.ServersChange, serve: peer.Permissive, call: peer.Strict},
		"changed again on the way":    {policies: off, stored: &phase.Peers{Settled: settled(off), Toward: digest(strict)}, serve: peer.Disable, call: peer.Disable, stale: true},
		"another change on the way":   {policies: off, stored: &phase.Peers{Toward: digest(strict)}, phase: peer.ServersChange, serve: peer.Permissive, call: peer.Permissive},
		"deleted":                     {stored: &phase.Peers{Settled: settled(strict)}, phase: peer.ServersChange, serve: peer.Permissive, call: peer.Strict},
		"deleted, and all have it":    {stored: &phase.Peers{}, serve: peer.Permissive, call: peer.Permissive, stale: true},
	} {
		var p *peer.Policies
		if c.policies != "" {
			p = policies(t, c.policies)["shop"]
		}
		p = p.WithStored(c.stored)
		scope := peer.Scope{Own: p}
		if c.serve == peer.Unset {
			c.serve, c.call = peer.Permissive, peer.Permissive
		}
		if serve, call := scope.Serve(nil, 80), scope.Call(nil, 80); p.Phase() != c.phase || serve != c.serve || call != c.call || p.Stale() != c.stale {
			t.Errorf("%s: phase %d, serves %s, is called %s, stale %v", name, p.Phase(), serve, call, p.Stale())
		}
	}
	now := policies(t, strict)["shop"]
	object := *now.All()[0].Config
	object.Annotations = map[string]string{peer.Immediate: "none"}
	if at := now.Replace(now.All()[0].Config, &object); at.Phase() != peer.Settled || !at.Stale() {
		t.Errorf("at once: phase %d", at.Phase())
	}
}
