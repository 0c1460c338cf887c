package credentials

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// LoginPath answers a GET with a LoginList, only over TLS and to this machine. It needs no
// credential.
const LoginPath = "/apis/" + access.Group + "/v1/login"

// LoginList lists the providers with which users can log in.
type LoginList struct {
	metav1.TypeMeta `json:",inline"`
	Providers       []Provider `json:"providers"`
}

// A Provider is an issuer with which users can log in. The server accepts its ID tokens.
type Provider struct {
	// Name is the name of the TokenIssuer.
	Name   string `json:"name"`
	Issuer string `json:"issuer"`
	// CA holds the PEM certificates of the authorities that may sign the issuer's
	// certificate; empty means the system's.
	CA       string `json:"ca,omitempty"`
	ClientID string `json:"clientId"`
	// Scopes are the scopes to request besides openid; none leaves the choice to the client.
	Scopes []string `json:"scopes,omitempty"`
}

// Logins adds LoginPath to a config API that does not serve yet. It lists those issuers with
// which users log in; issuers returns false if they are not known yet.
func Logins(api *rest.Server, issuers func() ([]oidc.Issuer, bool)) {
	api.Open("GET "+LoginPath, func(w http.ResponseWriter, _ *http.Request) error { return listLogins(issuers, w) })
}

func listLogins(issuers func() ([]oidc.Issuer, bool), w http.ResponseWriter) error {
	all, known := issuers()
	if !known {
		return refusal.Unavailable("the server has not read yet how users log in: try again in a moment")
	}
	out := LoginList{TypeMeta: metav1.TypeMeta{Kind: "Logins", APIVersion: access.Group + "/v1"}, Providers: []Provider{}}
	for _, one := range all {
		if users := one.Spec.Users; users != nil && users.Login != nil {
			out.Providers = append(out.Providers, Provider{one.Name, one.Spec.Issuer, one.Spec.CA, users.Login.ClientID, users.Login.Scopes})
		}
	}
	rest.WriteJSON(w, http.StatusOK, out)
	return nil
}
