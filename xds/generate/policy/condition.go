package policy

import (
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// conditions returns the clauses of conditions in a policy of a namespace. It is false if one
// of the keys is unknown.
func conditions(when []*security.Condition, namespace string, domains []string) (of []permissionClause, from []principalClause, ok bool) {
	ok = true
	for _, w := range when {
		p, known := permissionCondition(w)
		q, knownToo := principalCondition(w, namespace, domains)
		switch {
		case known:
			of = append(of, p)
		case knownToo:
			from = append(from, q)
		default:
			ok = false
		}
	}
	return of, from, ok
}

// permissionCondition translates a condition on what a request asks for; false for another.
func permissionCondition(w *security.Condition) (permissionClause, bool) {
	attribute, path, _ := schema.ParseCondition(w.GetKey())
	c := permissionClause{values: w.GetValues(), notValues: w.GetNotValues()}
	switch attribute {
	case schema.DestinationIP:
		c.on, c.match = everywhere, destinationIP
	case schema.DestinationPort:
		c.on, c.match = everywhere, port
	case schema.ConnectionSNI:
		c.on, c.match = ofEnvoy, serverName
	case schema.FilterMetadata:
		c.on, c.match = ofEnvoy, filterMetadata(path[0], path[1:])
	default:
		return permissionClause{}, false
	}
	return c, true
}

// principalCondition translates a condition on who sends a request; false for another.
func principalCondition(w *security.Condition, namespace string, domains []string) (principalClause, bool) {
	attribute, path, _ := schema.ParseCondition(w.GetKey())
	c := principalClause{values: w.GetValues(), notValues: w.GetNotValues(), on: everywhere}
	switch attribute {
	case schema.SourceIP:
		c.match = directIP
	case schema.RemoteIP:
		c.on, c.match = ofEnvoy, remoteIP
	case schema.SourceNamespace:
		c.on, c.match = ofIdentities, namespaceOf
	case schema.SourcePrincipal:
		c.values, c.notValues = withAliases(c.values, domains), withAliases(c.notValues, domains)
		c.on, c.match = ofIdentities, principal
	case schema.SourceServiceAccount:
		c.on, c.match = ofIdentities, serviceAccount(namespace)
	case schema.SourceTrustDomain:
		c.on, c.match = ofIdentities, trustDomain
	case schema.RequestPrincipal:
		c.on, c.match = ofRequests, requestPrincipal
	case schema.RequestAudiences:
		c.on, c.match = ofRequests, claim("aud")
	case schema.RequestPresenter:
		c.on, c.match = ofRequests, claim("azp")
	case schema.RequestClaim:
		c.on, c.match = ofRequests, claim(path...)
	case schema.RequestHeader:
		c.on, c.match = knowsHeader(path[0]), requestHeader(path[0])
	default:
		return principalClause{}, false
	}
	return c, true
}
