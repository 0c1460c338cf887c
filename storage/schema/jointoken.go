package schema

import (
	"net/netip"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
)

func joinToken() *Schema {
	s := definition[*access.JoinToken]{
		kind: JoinToken, plural: "jointokens",
		codec:  config.JSON[access.JoinToken](),
		served: serve("serviceAccount", "expires", "uses", "used", "sources", "hash").with("member", serve("name", "peerUrl", "clientUrl", "key")),
		check:  checkJoinToken,
	}.schema()
	s.Internal = true
	return s
}

func checkJoinToken(c checker, t *access.JoinToken) {
	if t.Member != nil {
		checkStoreMember(c.at("member"), t)
	} else if c.at("serviceAccount").required(t.ServiceAccount); t.ServiceAccount != "" && spiffeid.ValidatePathSegment(t.ServiceAccount) != nil {
		c.at("serviceAccount").fail("%q is not letters, digits, dots, dashes and underscores", t.ServiceAccount)
	}
	if t.Expires.IsZero() {
		c.at("expires").fail("is missing: say when the token ends")
	}
	if t.Uses < 1 {
		c.at("uses").fail("must be at least 1, is %d", t.Uses)
	}
	if t.Used < 0 || t.Used > t.Uses {
		c.at("used").fail("must be from 0 to the uses, is %d of %d", t.Used, t.Uses)
	}
	for i, source := range t.Sources {
		if _, err := netip.ParsePrefix(source); err != nil {
			c.at("sources").index(i).fail("%q is no range of addresses such as 10.0.0.0/8", source)
		}
	}
}

func checkStoreMember(c checker, t *access.JoinToken) {
	if t.ServiceAccount != "" {
		c.fail("is of a token for the store, which is for no service account")
	}
	c.at("name").required(t.Member.Name)
	c.at("peerUrl").required(t.Member.PeerURL)
	c.at("clientUrl").required(t.Member.ClientURL)
}
