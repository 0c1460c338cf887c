package schema_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestRulesOfRevokedIdentities(t *testing.T) {
	t.Parallel()
	kind := schema.Pilot().Kind(schema.RevokedIdentity)
	for name, c := range map[string]struct {
		spec access.RevokedIdentity
		want string
	}{
		"an account":            {access.RevokedIdentity{ServiceAccount: "web", Reason: "the machine was stolen"}, ""},
		"none":                  {access.RevokedIdentity{}, "spec.serviceAccount: is missing"},
		"a whole identity":      {access.RevokedIdentity{ServiceAccount: "spiffe://cluster.local/ns/a/sa/b"}, "spec.serviceAccount"},
		"a long reason":         {access.RevokedIdentity{ServiceAccount: "web", Reason: strings.Repeat("x", 257)}, "spec.reason: has 257 bytes"},
		"a reason of two lines": {access.RevokedIdentity{ServiceAccount: "web", Reason: "a\nb"}, "spec.reason: must be one line"},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.RevokedIdentity, Namespace: "shop", Name: "web"}, Spec: &c.spec}
		warnings, err := kind.Validate(object)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || len(warnings) > 0 {
			t.Errorf("%s: %v, %v; want %q", name, warnings, err, c.want)
		}
	}
}
