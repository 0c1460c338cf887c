package schema

import (
	security "istio.io/api/security/v1beta1"
)

func peerAuthentication() *Schema {
	return definition[*security.PeerAuthentication]{
		kind: PeerAuthentication, plural: "peerauthentications", shortName: "pa",
		newSpec: func() *security.PeerAuthentication { return &security.PeerAuthentication{} },
		stored:  true,
		check:   checkPeerAuthentication,
	}.schema()
}

func checkPeerAuthentication(checker, *security.PeerAuthentication) {}
