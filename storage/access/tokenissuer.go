package access

// TokenIssuer is an issuer of JWTs that are trusted to say who their holder is: a machine,
// a user of the API, or both. One in the root namespace of the mesh has an effect.
type TokenIssuer struct {
	// Issuer is the claim iss of the tokens, a URL.
	Issuer string `json:"issuer,omitempty"`
	// Audiences lists the accepted audiences: the claim aud must have one of them.
	Audiences []string `json:"audiences,omitempty"`
	// JWKSURI is where the keys are; without it the issuer is asked where.
	JWKSURI string `json:"jwksUri,omitempty"`
	// CA holds the PEM certificates of the authorities that may sign the certificates of
	// both; empty means the system's.
	CA string `json:"ca,omitempty"`
	// Workloads say which workload the holder of a token is: the first that matches.
	Workloads []WorkloadRule `json:"workloads,omitempty"`
	// Users says which user of the API the holder is; nil for none.
	Users *UserClaims `json:"users,omitempty"`
}

// WorkloadRule gives the holders of some tokens the identity of a workload.
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

// ClaimMatch asks for a claim that has one of some values. A claim that is a list has one
// if an element is that.
type ClaimMatch struct {
	// Claim is the path of the claim: its name, or the names from the outermost to it.
	Claim []string `json:"claim,omitempty"`
	// Values are texts; one that ends in * stands for all that begin so.
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

// Login is the client of an issuer by which users log in, with the device flow (RFC 8628).
// The client has no secret.
type Login struct {
	// ClientID is the client at the issuer. ID tokens are for it, so it is one of the
	// audiences.
	ClientID string `json:"clientId,omitempty"`
	// Scopes are those to ask for, beside openid; none stands for what the issuer has of
	// profile, email, groups and offline_access.
	Scopes []string `json:"scopes,omitempty"`
}
