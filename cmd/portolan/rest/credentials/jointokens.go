package credentials

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const joinTokensPath = "/apis/portolan.io/v1/namespaces/{namespace}/jointokenrequests"

// JoinTokensPath returns the path at which a POST of an Order makes a token for a namespace.
func JoinTokensPath(namespace string) string {
	return strings.Replace(joinTokensPath, "{namespace}", url.PathEscape(namespace), 1)
}

// An Order is a join.Request in JSON, and also the answer, with the token.
type Order struct {
	metav1.TypeMeta `json:",inline"`
	ServiceAccount  string `json:"serviceAccount"`
	// TTL is a duration such as 1h, only in the request.
	TTL     string   `json:"ttl,omitempty"`
	Uses    int      `json:"uses,omitempty"`
	Sources []string `json:"sources,omitempty"`

	// The following fields are only in the answer. Token is never shown again.
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Token     string    `json:"token,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
	// Roots holds the authorities of the server's certificate, in PEM. It is empty if clients
	// know the server's roots from files.
	Roots string `json:"roots,omitempty"`
}

// JoinTokens adds the creation of tokens to a config API that does not serve yet. Callers need
// the right to create JoinTokens in the namespace, and the consent of join.Options.May.
func JoinTokens(api *rest.Server, tokens *join.Tokens) {
	api.EndpointFor(schema.JoinToken, "create", "POST "+joinTokensPath, func(w http.ResponseWriter, r *http.Request) error {
		return orderToken(api, tokens, w, r)
	})
}

func orderToken(api *rest.Server, tokens *join.Tokens, w http.ResponseWriter, r *http.Request) error {
	var order Order
	if err := rest.ReadJSON(w, r, &order); err != nil {
		return err
	}
	if order.Token != "" || order.Name != "" || !order.Expires.IsZero() || order.Namespace != "" || order.Roots != "" {
		return refusal.BadRequest("namespace, name, token, expires and roots are of the answer: leave them out")
	}
	ask := join.Request{Namespace: r.PathValue("namespace"), ServiceAccount: order.ServiceAccount, Uses: order.Uses, Sources: order.Sources}
	if order.TTL != "" {
		ttl, err := time.ParseDuration(order.TTL)
		if err != nil || ttl <= 0 {
			return refusal.BadRequest(fmt.Sprintf("ttl: %q is no duration such as 1h", order.TTL))
		}
		ask.TTL = ttl
	}
	made, roots, err := tokens.Order(r.Context(), ask)
	if err != nil {
		return err
	}
	api.Await(r.Context(), made.Revision)
	rest.WriteJSON(w, http.StatusCreated, Order{
		TypeMeta:       metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "JoinTokenRequest"},
		ServiceAccount: made.Spec.ServiceAccount, Uses: made.Spec.Uses, Sources: made.Spec.Sources,
		Namespace: made.Namespace, Name: made.Name, Token: made.Token, Expires: made.Spec.Expires, Roots: roots,
	})
	return nil
}
