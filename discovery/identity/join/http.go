package join

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	pathPattern = "/apis/portolan.io/v1/namespaces/{namespace}/jointokenrequests"
	apiVersion  = "portolan.io/v1"
)

// Path returns the path at which a POST of an Order makes a token for a namespace.
func Path(namespace string) string {
	return strings.Replace(pathPattern, "{namespace}", url.PathEscape(namespace), 1)
}

// An Order is a Request in JSON, and also the answer, with the token.
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

// Register adds the creation of tokens to a config API that does not serve yet. Callers need
// the right to create JoinTokens in the namespace, and the consent of Options.May.
func (t *Tokens) Register(api *rest.Server) {
	api.EndpointFor(schema.JoinToken, "create", "POST "+pathPattern, func(w http.ResponseWriter, r *http.Request) error {
		return t.order(api, w, r)
	})
}

func (t *Tokens) order(api *rest.Server, w http.ResponseWriter, r *http.Request) error {
	var order Order
	if err := rest.ReadJSON(w, r, &order); err != nil {
		return err
	}
	if order.Token != "" || order.Name != "" || !order.Expires.IsZero() || order.Namespace != "" || order.Roots != "" {
		return rest.BadRequest("namespace, name, token, expires and roots are of the answer: leave them out")
	}
	ask := Request{Namespace: r.PathValue("namespace"), ServiceAccount: order.ServiceAccount, Uses: order.Uses, Sources: order.Sources}
	if order.TTL != "" {
		ttl, err := time.ParseDuration(order.TTL)
		if err != nil || ttl <= 0 {
			return rest.BadRequest(fmt.Sprintf("ttl: %q is no duration such as 1h", order.TTL))
		}
		ask.TTL = ttl
	}
	if who, err := identity.New(t.o.TrustDomain, ask.Namespace, ask.ServiceAccount); err == nil { // if it fails, Create returns the error
		if err := t.o.May(r.Context(), who); err != nil {
			return err
		}
	}
	roots, err := t.roots(r.Context())
	if err != nil {
		return err
	}
	made, err := t.Create(r.Context(), ask)
	if err != nil {
		return err
	}
	api.Await(r.Context(), made.Revision)
	rest.WriteJSON(w, http.StatusCreated, Order{
		TypeMeta:       metav1.TypeMeta{APIVersion: apiVersion, Kind: "JoinTokenRequest"},
		ServiceAccount: made.Spec.ServiceAccount, Uses: made.Spec.Uses, Sources: made.Spec.Sources,
		Namespace: made.Namespace, Name: made.Name, Token: made.Token, Expires: made.Spec.Expires, Roots: roots,
	})
	return nil
}

// Seal implements rest.Sealer. It refuses every object: only the server that makes a token
// knows its hash, and a used or revoked token must not come back.
func (t *Tokens) Seal(_ context.Context, object, _ *config.Config, _ bool) (*config.Config, error) {
	return nil, fmt.Errorf("%w: a join token is made by portolan token create, and neither written nor brought back: make another, and revoke %s if it is there",
		storage.ErrInvalid, object.Name)
}
