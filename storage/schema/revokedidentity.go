package schema

import (
	"strings"
	"unicode"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
)

func revokedIdentity() *Schema {
	s := definition[*access.RevokedIdentity]{
		kind: RevokedIdentity, plural: "revokedidentities", shortName: "ri",
		codec:  config.JSON[access.RevokedIdentity](),
		served: serve("serviceAccount", "before", "reason"),
		check:  checkRevokedIdentity,
	}.schema()
	s.Internal = true
	return s
}

// maxReason bounds the reason of a revocation, which is part of a refusal.
const maxReason = 256

func checkRevokedIdentity(c checker, r *access.RevokedIdentity) {
	switch {
	case r.ServiceAccount == "":
		c.at("serviceAccount").fail("is missing: name the service account of this namespace whose certificates are revoked")
	case spiffeid.ValidatePathSegment(r.ServiceAccount) != nil:
		c.at("serviceAccount").fail("%q is not letters, digits, dots, dashes and underscores", r.ServiceAccount)
	}
	switch {
	case len(r.Reason) > maxReason:
		c.at("reason").fail("has %d bytes, and may have %d", len(r.Reason), maxReason)
	case strings.ContainsFunc(r.Reason, unicode.IsControl):
		c.at("reason").fail("must be one line of text")
	}
}
