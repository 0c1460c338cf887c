package schema

import (
	security "istio.io/api/security/v1beta1"
)

func requestAuthentication() *Schema {
	return definition[*security.RequestAuthentication]{
		kind: RequestAuthentication, plural: "requestauthentications", shortName: "ra",
		newSpec: func() *security.RequestAuthentication { return &security.RequestAuthentication{} },
		stored:  true,
		check:   checkRequestAuthentication,
	}.schema()
}

func checkRequestAuthentication(checker, *security.RequestAuthentication) {}
