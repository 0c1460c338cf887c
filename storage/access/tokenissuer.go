package access

// TokenIssuer is an issuer whose JWTs authenticate their holders: machines, users of the
// API, or both. It has an effect only in the root namespace of the mesh.
type TokenIssuer struct {
	// Issuer is the claim iss of the tokens, a URL.
	Issuer string `json:"issuer,omitempty"`
	// Audiences lists the accepted audiences: the claim aud must have one of them.
	Audiences []string `json:"audiences,omitempty"`
	// JWKSURI is the URL of the keys; if empty, OpenID Connect discovery at Issuer finds
	// it.
	JWKSURI string `json:"jwksUri,omitempty"`
	// CA holds, in PEM, the authorities that the servers of Issuer and of JWKSURI are
	// verified with; empty means the system's.
	CA string `json:"ca,omitempty"`
	// Workloads map tokens to workloads: the first rule that matches applies.
	Workloads []WorkloadRule `json:"workloads,omitempty"`
	// Users says which user of the API the holder is; nil for none.
	Users *UserClaims `json:"users,omitempty"`
}

// WorkloadRule gives the holders of matching tokens the identity of a workload.
type WorkloadRule struct {
	// Match are the claims that a token must have, each of them.
	Match []ClaimMatch `json:"match,omitempty"`
	// Namespace, or the claim NamespaceClaim, is the namespace of the workload, and
	// ServiceAccount, or ServiceAccountClaim, its service account.
	Namespace           string   `json:"namespace,omitempty"`
	NamespaceClaim      []string `json:"namespaceClaim,omitempty"`
	ServiceAccount      string   `json:"serviceAccount,omitempty"`
	ServiceAccountClaim []string `json:"serviceAccountClaim,omitempty"`
}

// ClaimMatch requires that a claim has one of some values. Of a claim that is a list, one
// element must have it.
type ClaimMatch struct {
	// Claim is the path of the claim: its name, or the names from the outermost object down
	// to it.
	Claim []string `json:"claim,omitempty"`
	// Values are strings; one that ends in * matches every string with that prefix.
	Values []string `json:"values,omitempty"`
}

// UserClaims name the claims that say who a user is. The name of the TokenIssuer and a colon
// go before each name, so that no issuer can name the user of another.
type UserClaims struct {
	// Username is the claim with the name; empty stands for sub.
	Username string `json:"username,omitempty"`
	// Groups is the claim with the groups; empty for none.
	Groups string `json:"groups,omitempty"`
	// Login is how the command line logs users in with the issuer; nil if it does not.
	Login *Login `json:"login,omitempty"`
}

// Login is the OAuth client with which users log in at an issuer, by the device flow (RFC
// 8628). The client has no secret.
type Login struct {
	// ClientID is the ID of the client at the issuer. It is the audience of ID tokens, so
	// Audiences must have it.
	ClientID string `json:"clientId,omitempty"`
	// Scopes are the scopes to request beside openid. Empty means those of profile, email,
	// groups and offline_access that the issuer supports.
	Scopes []string `json:"scopes,omitempty"`
}
