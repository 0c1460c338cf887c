package issue

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/secure"
)

// Serve adds certificate.Path to a config API that does not serve yet.
func (i *Issuer) Serve(api *rest.Server) { api.Open(certificate.Path, i.post) }

func (i *Issuer) post(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return rest.Refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, fmt.Sprintf("method %s is not allowed on %s: it takes POST", r.Method, r.URL.Path))
	}
	credential, err := bearer(r.Header.Values("Authorization"))
	if err != nil {
		return rest.BadRequest(err.Error())
	}
	var in certificate.Request
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if in.Kind != "" && in.Kind != certificate.RequestKind || in.APIVersion != "" && in.APIVersion != certificate.APIVersion {
		return rest.BadRequest(fmt.Sprintf("the body is a %.40q of apiVersion %.40q: send kind %s of apiVersion %s", in.Kind, in.APIVersion, certificate.RequestKind, certificate.APIVersion))
	}
	request := Request{CSR: []byte(in.CSR), Credential: credential, From: addressOf(r.RemoteAddr), Tool: r.UserAgent()}
	if in.TTL != "" {
		if request.Life, err = time.ParseDuration(in.TTL); err != nil || request.Life <= 0 {
			return rest.BadRequest(fmt.Sprintf("ttl: %.40q is no time: use one such as 24h or 30m", in.TTL))
		}
	}
	if r.TLS != nil {
		request.Certificates = r.TLS.PeerCertificates
		request.Renewal = secure.Unverified(r.TLS)
	}
	signed, who, err := i.Issue(r.Context(), request)
	if err != nil {
		return asHTTP(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	out := certificate.Certificate{
		TypeMeta: metav1.TypeMeta{Kind: certificate.Kind, APIVersion: certificate.APIVersion},
		Identity: who.String(), Serial: signed.Leaf.SerialNumber.Text(16), Roots: string(signed.Roots),
		NotBefore: signed.Leaf.NotBefore, NotAfter: signed.Leaf.NotAfter,
	}
	for _, c := range signed.Chain {
		out.Chain += string(c)
	}
	rest.WriteJSON(w, http.StatusCreated, out)
	return nil
}

// RenewalsOnly has connections whose certificate nobody has verified reach certificate.Path
// alone, and passes on the requests of all others.
func RenewalsOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if secure.Unverified(r.TLS) && r.URL.Path != certificate.Path {
			http.Error(w, "a connection by "+certificate.RenewalProtocol+" renews certificates, at "+certificate.Path+", and does nothing else", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// asHTTP returns the HTTP error for a refused request.
func asHTTP(err error) error {
	refusal, ok := err.(*Refusal)
	if !ok {
		return err
	}
	switch refusal.Reason {
	case Unproven:
		return rest.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, refusal.Error())
	case Forbidden:
		return rest.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, refusal.Error())
	case Throttled:
		return rest.TooMany(refusal.Error(), identity.RetryAfter(refusal))
	case Unavailable:
		return rest.Unavailable(refusal.Error())
	}
	return rest.Refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, refusal.Error())
}

// bearer returns the bearer token of a request, empty if it has none.
func bearer(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	scheme, credential, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(credential) == "" {
		return "", fmt.Errorf("authorization is not Bearer and one credential")
	}
	return strings.TrimSpace(credential), nil
}

// addressOf returns the address of a peer, the zero Addr if it cannot be read.
func addressOf(text string) netip.Addr {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
