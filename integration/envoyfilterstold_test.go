package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// TestARefusedPatchIsBlamed: an Envoy refuses a listener for the script of an EnvoyFilter, which Go
// cannot judge. apply --wait and the status of the EnvoyFilter say so, all else goes on being served,
// and without it all is well.
func TestARefusedPatchIsBlamed(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		s.startPair(v)
		expectVersion := func(when, want string) {
			t.Helper()
			eventually(t, when, func() error {
				for name, q := range map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")} {
					if got := send(t, q).String(); got != want {
						return fmt.Errorf("the %s answers %q, want %q", name, got, want)
					}
				}
				return nil
			})
		}
		s.apply("apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: logs, namespace: shop}\nspec: {accessLogging: [{providers: [{name: envoy}]}]}\n")
		bad := envoyFilter(beforeRouter("SIDECAR_OUTBOUND", strings.Replace(luaHeader, "function envoy_on_response(r)", "functions (", 1)))
		out := s.applyWait([]string{bad})
		if all := out.stdout + out.stderr; out.code != 2 || !strings.Contains(all, "envoyfilter/shop/patch") || !strings.Contains(all, "script load error") {
			t.Errorf("apply --wait: %+v", out)
		}
		if out := s.try("", "wait", "envoyfilter/patch", "-n", "shop"); out.code != 2 {
			t.Errorf("wait: %+v", out)
		}
		s.awaitCondition("envoyfilters", "patch", "Rejected", "True", "script load error")
		s.awaitCondition("envoyfilters", "patch", "Stalled", "True", "script load error")
		eventually(t, "the Telemetry of the listener is not blamed", func() error {
			if out := s.must("", "describe", "telemetry", "logs", "-n", "shop"); !strings.Contains(out, "Acknowledged") || strings.Contains(out, "Rejected") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		if shown := s.must("", "proxy", "config", "all", "client", "--show-patches"); !strings.Contains(shown, "rejected, the proxy keeps what it had: ") || strings.Contains(shown, "applied") {
			t.Errorf("proxy config: %s", shown)
		}
		if e, err := s.explain("client", fmt.Sprintf("%s:%d", shopHost, x.service), request{}); err != nil || !slices.ContainsFunc(e.Patches, func(p explain.Patch) bool { return strings.Contains(p.Rejected, "script load error") }) {
			t.Errorf("explain: %+v, %v", e.Patches, err)
		}
		expectVersion("with it", "v1")
		s.apply(x.routes(0, 100))
		expectVersion("a later change beside it", "v2")
		s.awaitSynced(s.remove(bad), "edge", "client")
		expectVersion("without it", "v2")
		s.awaitSynced(s.apply(envoyFilter(beforeRouter("SIDECAR_OUTBOUND", luaHeader))), "edge", "client")
		if got := send(t, x.atSidecar("/")).header.Get("X-Patched"); got != "lua" {
			t.Errorf("the mended script adds %q", got)
		}
		s.awaitCondition("envoyfilters", "patch", "Programmed", "True", "")
		s.awaitCondition("envoyfilters", "patch", "Rejected", "", "")
	})
}

// TestWhatPatchesDidIsTold: proxy config, verdicts and explain say of each patch of an EnvoyFilter
// whether it applied, failed or matched nothing.
func TestWhatPatchesDidIsTold(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(100, 0))
	s.startPair(protocol.Delta)
	s.awaitSynced(s.apply(envoyFilter(beforeRouter("SIDECAR_OUTBOUND", luaHeader)+`
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND}
    patch: {operation: ADD, value: {name: BlackHoleCluster, type: STATIC, connect_timeout: 1s}}
  - applyTo: CLUSTER
    match: {cluster: {service: none.test}}
    patch: {operation: MERGE, value: {connect_timeout: 7s}}
`)), "edge", "client")
	shown := s.must("", "proxy", "config", "all", "client", "--show-patches")
	for _, want := range [][]string{{"LDS", "shop/patch", "configPatches[0]", "applied"}, {"CDS", "BlackHoleCluster", "configPatches[1]", "failed: "}} {
		if !slices.ContainsFunc(strings.Split(shown, "\n"), func(line string) bool {
			return !slices.ContainsFunc(want, func(word string) bool { return !strings.Contains(line, word) })
		}) {
			t.Errorf("no line has %q:\n%s", want, shown)
		}
	}
	eventually(t, "the EnvoyFilter says which patches failed or match nothing", func() error {
		out := s.try("", "describe", "envoyfilter", "patch", "-n", "shop")
		for _, want := range []string{"PTL0461", "cannot be applied to CDS BlackHoleCluster", "PTL0462", "configPatches[2]"} {
			if !strings.Contains(out.stdout, want) {
				return fmt.Errorf("no %s in\n%s", want, out.stdout)
			}
		}
		return nil
	})
	e, err := s.explain("client", fmt.Sprintf("%s:%d", shopHost, x.service), request{})
	if err != nil || len(e.Patches) == 0 || len(e.NotSimulated) != 1 || !strings.Contains(e.NotSimulated[0], "envoyfilter/shop/patch") || len(e.Destinations) == 0 {
		t.Errorf("explain: %+v, %v", e, err)
	}
	s.apply(envoyFilter(beforeRouter("SIDECAR_OUTBOUND", luaHeader)))
	eventually(t, "nothing is odd any more", func() error {
		if out := s.try("", "describe", "envoyfilter", "patch", "-n", "shop"); strings.Contains(out.stdout, "PTL046") {
			return fmt.Errorf("%s", out.stdout)
		}
		return nil
	})
}
