package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// Miss says where a rule of an ALLOW policy does not match a request.
type Miss struct {
	Policy string `json:"policy"`
	// Field has the values of Asked, and Came is what the request has; it is empty for nothing.
	Field string   `json:"field"`
	Asked []string `json:"asked"`
	Came  string   `json:"came,omitempty"`
}

// String returns all of it, such as "spec.rules[0].to[0].operation.methods of
// authorizationpolicy/shop/web asks for GET, and POST came".
func (m Miss) String() string {
	const shown = 3
	asked := m.Asked
	if more := len(asked) - shown; more > 0 {
		asked = append(slices.Clone(asked[:shown]), fmt.Sprintf("%d more", more))
	}
	asks := "asks for"
	if field := m.Field[strings.LastIndexByte(m.Field, '.')+1:]; strings.HasPrefix(field, "not") {
		asks = "excludes"
	}
	return fmt.Sprintf("%s of %s %s %s, and %s came", m.Field, m.Policy, asks, strings.Join(asked, ", "), cmp.Or(m.Came, "nothing"))
}

// misses returns a miss for each alternative of each rule of the ALLOW policies, none of which
// matches.
func (own policiesOf) misses(result simulate.Result, o policy.Options) []Miss {
	allowing := own.allowing(false)
	tcp := result.Status == 0 // a refused request is answered with 403
	var out []Miss
	for _, name := range allowing {
		c := own[slices.IndexFunc(own, func(c *config.Config) bool { return c.Key().String() == name })]
		for i, rule := range c.Spec.(*security.AuthorizationPolicy).GetRules() {
			for _, alternatives := range policy.Parts(c, rule, tcp, o) {
				missed := missesOf(alternatives, result, func(p policy.Part) Miss {
					return Miss{Policy: name, Field: fmt.Sprintf("spec.rules[%d].%s", i, p.Field), Asked: p.Values, Came: came(p, result)}
				})
				if len(missed) == len(alternatives) {
					out = append(out, missed...)
					break // the first side that misses is enough to say why the rule does
				}
			}
		}
	}
	return out
}

// missesOf returns the first part that does not match of each alternative that does not.
func missesOf(alternatives [][]policy.Part, result simulate.Result, miss func(policy.Part) Miss) []Miss {
	var out []Miss
	for _, parts := range alternatives {
		if i := slices.IndexFunc(parts, func(p policy.Part) bool { return p.Matches == nil || !result.Matches(p.Matches) }); i >= 0 {
			out = append(out, miss(parts[i]))
		}
	}
	return out
}

// came returns what a request has where a part of a rule looks; empty for nothing.
func came(p policy.Part, result simulate.Result) string {
	r := result.Judged()
	if p.Matches == nil {
		return "a connection of TCP"
	}
	if p.Key != "" {
		return valueOf(p.Key, result)
	}
	field := p.Field[strings.LastIndexByte(p.Field, '.')+1:]
	if rest, ok := strings.CutPrefix(field, "not"); ok {
		field = strings.ToLower(rest[:1]) + rest[1:]
	}
	switch field {
	case "principals", "namespaces", "serviceAccounts", "trustDomains":
		return nameOf(result)
	case "requestPrincipals":
		return valueOf("request.auth.principal", result)
	case "ipBlocks":
		return r.Source
	case "remoteIpBlocks":
		return cmp.Or(r.Origin, r.Source)
	case "hosts":
		return r.Host
	case "methods":
		return r.Method
	case "paths":
		path, _, _ := strings.Cut(r.Path, "?")
		return path
	}
	return fmt.Sprint(r.Port) // of ports
}

// nameOf is the identity that a caller proved, as policies write it.
func nameOf(result simulate.Result) string {
	return cmp.Or(strings.TrimPrefix(result.Identity, "spiffe://"), "nobody")
}

// valueOf returns what a request has for the key of a condition; empty for nothing.
func valueOf(key string, result simulate.Result) string {
	r := result.Judged()
	claims, _ := r.Metadata[rbac.TokenMetadata][rbac.TokenPayload].(map[string]any)
	claim := func(path ...string) string {
		var value any = claims
		for _, name := range path {
			of, _ := value.(map[string]any)
			value = of[name]
		}
		if value == nil {
			return ""
		}
		return fmt.Sprint(value)
	}
	attribute, path, _ := schema.ParseCondition(key)
	switch attribute {
	case schema.SourcePrincipal, schema.SourceNamespace, schema.SourceServiceAccount, schema.SourceTrustDomain:
		return nameOf(result)
	case schema.SourceIP:
		return r.Source
	case schema.RemoteIP:
		return cmp.Or(r.Origin, r.Source)
	case schema.DestinationIP:
		return r.Address
	case schema.DestinationPort:
		return fmt.Sprint(r.Port)
	case schema.ConnectionSNI:
		return r.SNI
	case schema.RequestPrincipal:
		return strings.Trim(claim("iss")+"/"+claim("sub"), "/")
	case schema.RequestAudiences:
		return claim("aud")
	case schema.RequestPresenter:
		return claim("azp")
	case schema.RequestClaim:
		return claim(path...)
	case schema.RequestHeader:
		for name, value := range r.Headers {
			if strings.EqualFold(name, path[0]) {
				return value
			}
		}
	}
	return ""
}

// asksIdentity reports whether a policy names identities.
func asksIdentity(c *config.Config) bool {
	return len(policy.IdentityFields(c.Spec.(*security.AuthorizationPolicy))) > 0
}

// identityField returns the first field of a rule that names identities.
func (own policiesOf) identityField(r *PolicyRule) string {
	i := slices.IndexFunc(own, func(c *config.Config) bool { return c.Key().String() == r.Policy })
	for _, field := range policy.IdentityFields(own[i].Spec.(*security.AuthorizationPolicy)) {
		if strings.HasPrefix(field, r.Field+".") {
			return field
		}
	}
	return r.Field
}
