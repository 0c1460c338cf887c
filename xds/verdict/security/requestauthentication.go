package security

import (
	"fmt"
	"time"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// RequestAuthentication judges a RequestAuthentication.
func RequestAuthentication(j *verdict.Judge, object *config.Config) {
	s := selectionOf(j, object)
	s.unused()
	if servers := s.servers(); servers.Count() > 0 {
		s.add(verdict.TokensUnverified, "spec.jwtRules", "give them sidecars, or have the programs verify tokens themselves",
			"is nothing that a gRPC server does: %s. There every token passes, and rules of AuthorizationPolicies about tokens match nothing", servers)
	}
	s.requestAuthentication(object)
}

// requestAuthentication warns of rules whose keys are not fetched, or cannot be fetched again.
func (j *judge) requestAuthentication(object *config.Config) {
	root := j.Mesh().MeshConfig().GetRootNamespace()
	for i, rule := range object.Spec.(*securityv1beta1.RequestAuthentication).GetJwtRules() {
		source, ok := keyset.SourceOf(rule)
		if !ok {
			continue
		}
		field := "jwksUri"
		if source.Discover {
			field = "issuer"
		}
		field = fmt.Sprintf("spec.jwtRules[%d].%s", i, field)
		set := j.Object(config.Key{Kind: schema.KeySet, Namespace: root, Name: source.Name()})
		if set == nil {
			j.Add(verdict.Verdict{
				Code: verdict.KeysAwaited, Field: field,
				Message: "the leading server has not fetched the keys yet: until it has, proxies refuse the tokens",
				Remedy:  "wait; if it lasts, see that a server leads",
			})
			continue
		}
		fetched := set.Spec.(*keyset.Fetched)
		if fetched.Error == "" {
			continue
		}
		v := verdict.Verdict{
			Code: verdict.KeysMissing, Field: field,
			Message: "the leading server cannot fetch the keys, and never could, so proxies refuse the tokens: " + fetched.Error,
			Remedy:  "see that the URL is right and answers, with a certificate that this machine trusts, or give the keys in jwks",
		}
		if fetched.Keys != "" {
			v.Message = fmt.Sprintf("the leading server cannot fetch the keys again, and proxies go on with those of %s: %s", fetched.Since.UTC().Format(time.RFC3339), fetched.Error)
		}
		j.Add(v)
	}
}
