package credentials

import (
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/issue"
	"github.com/portolan-mesh/portolan/discovery/identity/secure"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Certificates adds certificate.Path to a config API that does not serve yet.
func Certificates(api *rest.Server, issuer *issue.Issuer) {
	api.Open(certificate.Path, rest.Only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) error { return issueCertificate(issuer, w, r) }))
}

func issueCertificate(issuer *issue.Issuer, w http.ResponseWriter, r *http.Request) error {
	credential, err := issue.Bearer(r.Header.Values("Authorization"))
	if err != nil {
		return refusal.BadRequest(err.Error())
	}
	var in certificate.Request
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if in.Kind != "" && in.Kind != certificate.RequestKind || in.APIVersion != "" && in.APIVersion != certificate.APIVersion {
		return refusal.BadRequest(fmt.Sprintf("the body is a %.40q of apiVersion %.40q: send kind %s of apiVersion %s", in.Kind, in.APIVersion, certificate.RequestKind, certificate.APIVersion))
	}
	request := issue.Request{CSR: []byte(in.CSR), Credential: credential, From: issue.AddressOf(r.RemoteAddr), Tool: r.UserAgent()}
	if in.TTL != "" {
		if request.Life, err = time.ParseDuration(in.TTL); err != nil || request.Life <= 0 {
			return refusal.BadRequest(fmt.Sprintf("ttl: %.40q is no time: use one such as 24h or 30m", in.TTL))
		}
	}
	if r.TLS != nil {
		request.Certificates = r.TLS.PeerCertificates
		request.Renewal = secure.Unverified(r.TLS)
	}
	signed, who, err := issuer.Issue(r.Context(), request)
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

func asHTTP(err error) error {
	refused, ok := err.(*issue.Refusal)
	if !ok {
		return err
	}
	switch refused.Reason {
	case issue.Unproven:
		return refusal.Unauthorized(refused.Error())
	case issue.Forbidden:
		return refusal.Forbidden(refused.Error())
	case issue.Throttled:
		return refusal.TooMany(refused.Error(), identity.RetryAfter(refused))
	case issue.Unavailable:
		return refusal.Unavailable(refused.Error())
	}
	return refusal.Invalid(refused.Error())
}
