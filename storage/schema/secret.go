package schema

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/secret"
)

func secretKind() *Schema {
	s := definition[*secret.Spec]{
		kind: Secret, plural: "secrets",
		codec:  config.JSON[secret.Spec](),
		served: serve("type", "immutable", "data", "stringData", "sealed"),
		check:  checkSecret,
	}.schema()
	s.Internal = true
	return s
}

func checkSecret(c checker, s *secret.Spec) {
	if s.Sealed != nil && s.Sealed.Box != nil && s.InClear() {
		c.at("sealed").fail("is what servers make of data: leave it out")
	}
	if s.Type == secret.HelmRelease {
		c.at("type").fail("is that of Helm's releases, which Helm reads back, and nobody reads the data of a secret back here: set HELM_DRIVER=configmap")
	}
	if s.Sealed != nil && !s.InClear() { // the data was checked when it was sealed
		return
	}
	secret.Check(s.Type, s.Entries(), func(name, format string, args ...any) {
		at := c.at("data")
		if _, text := s.StringData[name]; text {
			at = c.at("stringData")
		}
		if name != "" {
			at = at.key(name)
		}
		at.fail(format, args...)
	})
}
