package schema

import (
	security "istio.io/api/security/v1beta1"
)

func authorizationPolicy() *Schema {
	return definition[*security.AuthorizationPolicy]{
		kind: AuthorizationPolicy, plural: "authorizationpolicies", shortName: "ap",
		newSpec: func() *security.AuthorizationPolicy { return &security.AuthorizationPolicy{} },
		stored:  true,
		check:   checkAuthorizationPolicy,
	}.schema()
}

func checkAuthorizationPolicy(checker, *security.AuthorizationPolicy) {}
