package patch_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
)

const (
	inbound  = networking.EnvoyFilter_SIDECAR_INBOUND
	outbound = networking.EnvoyFilter_SIDECAR_OUTBOUND
	gateway  = networking.EnvoyFilter_GATEWAY
)

func fromYAML(t testing.TB, name string, text []byte, m proto.Message) {
	t.Helper()
	text, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = protojson.Unmarshal(text, m)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// filterOf parses an EnvoyFilter shop/a with these patches, in YAML or JSON.
func filterOf(t testing.TB, patches string) *patch.Filter {
	t.Helper()
	return patch.Parse("shop", "a", time.Unix(1, 0), specOf(t, patches))
}

func specOf(t testing.TB, patches string) *networking.EnvoyFilter {
	t.Helper()
	spec := &networking.EnvoyFilter{}
	fromYAML(t, "the test's patches", []byte("configPatches:\n "+strings.ReplaceAll(patches, "\n", "\n ")), spec)
	return spec
}
