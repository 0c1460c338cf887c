package schema_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestRulesOfJoinTokens(t *testing.T) {
	t.Parallel()
	kind := schema.Pilot().Kind(schema.JoinToken)
	if !kind.Internal || !kind.Codec.Veiled() {
		t.Error("other meshes or documents have join tokens")
	}
	for name, c := range map[string]struct {
		spec access.JoinToken
		want []string
	}{
		"good":  {access.JoinToken{ServiceAccount: "web", Expires: time.Unix(1, 0), Uses: 3, Used: 3, Sources: []string{"10.0.0.0/8"}}, nil},
		"empty": {access.JoinToken{}, []string{"spec.serviceAccount: is missing", "spec.expires: is missing: say when the token ends", "spec.uses: must be at least 1, is 0"}},
		"wrong": {access.JoinToken{ServiceAccount: "../x", Expires: time.Unix(1, 0), Uses: 1, Used: 2, Sources: []string{"10.0.0.0/8", "10.0.0.1"}}, []string{
			`spec.serviceAccount: "../x" is not letters, digits, dots, dashes and underscores`,
			"spec.used: must be from 0 to the uses, is 2 of 1",
			`spec.sources[1]: "10.0.0.1" is no range of addresses such as 10.0.0.0/8`,
		}},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.JoinToken, Namespace: "shop", Name: "a"}, Spec: &c.spec}
		_, err := kind.Validate(object)
		var got []string
		for _, fault := range config.Faults(err) {
			got = append(got, fault.Error())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
