package issue

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/storage"
)

// Options configure an Issuer. Authority is required.
type Options struct {
	Authority *authority.Authority
	// Proofs verify the credentials of workloads that have no certificate yet.
	Proofs identity.Proofs
	// OnRefusal is called for each request that is refused for its sender or its content; nil
	// means that nobody is told. It must not block.
	OnRefusal func(Attempt)
	// Registerer registers the metrics; nil means no metrics.
	Registerer prometheus.Registerer
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

// Issuer gives certificates to workloads that prove their identity. It is safe for concurrent
// use.
type Issuer struct {
	authority *authority.Authority
	proofs    identity.Proofs
	audit     *audit
	onRefusal func(Attempt)
	logger    *slog.Logger
	issued    *prometheus.CounterVec
	refused   *prometheus.CounterVec
}

// New returns an issuer.
func New(o Options) (*Issuer, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	i := &Issuer{
		authority: o.Authority, proofs: o.Proofs, logger: o.Logger, audit: newAudit(), onRefusal: o.OnRefusal,
		issued: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_certificates_issued_total",
			Help: "Certificates that were issued to workloads, by what earned them: a credential, or the certificate before."}, []string{"proof"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_certificates_refused_total",
			Help: "Requests for certificates that were refused, by reason."}, []string{"reason"}),
	}
	for _, proof := range []string{byCredential, byCertificate, byExpired} {
		i.issued.WithLabelValues(proof)
	}
	for _, reason := range reasons {
		i.refused.WithLabelValues(string(reason))
	}
	if o.Registerer != nil {
		for _, c := range []prometheus.Collector{i.issued, i.refused, i.audit.lost} {
			if err := o.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return i, nil
}

// The proofs that earn a certificate, as labels of the metrics.
const byCredential, byCertificate, byExpired = "credential", "certificate", "expired certificate"

// Reason says why a request is refused.
type Reason string

// The reasons.
const (
	Invalid     Reason = "invalid"     // the request is at fault
	Unproven    Reason = "unproven"    // its sender has not proved who it is
	Forbidden   Reason = "forbidden"   // the sender may not have a certificate, or not this one
	Throttled   Reason = "throttled"   // too many attempts
	Unavailable Reason = "unavailable" // the server cannot sign or decide at present
)

var reasons = []Reason{Invalid, Unproven, Forbidden, Throttled, Unavailable}

// Refusal is the error of a request that is refused. Its text may be shown to the sender.
type Refusal struct {
	Reason Reason
	Err    error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error.
func (r *Refusal) Unwrap() error { return r.Err }

// Request asks for a certificate.
type Request struct {
	// CSR is a certificate signing request in PEM. Life is how long the certificate should be
	// valid; 0 means the default.
	CSR  []byte
	Life time.Duration
	// Credential is a credential for a Proof, empty for none. It goes before Certificates,
	// unless they renew the identity that the CSR names: agents send both, even long after the
	// credential has expired.
	Credential string
	// Certificates is the chain from the sender's TLS handshake, the leaf first.
	Certificates []*x509.Certificate
	// Renewal means that the connection was made to renew a certificate, which may have
	// expired.
	Renewal bool
	// From is the sender's address, the zero Addr if unknown. Tool is the sender's program.
	From netip.Addr
	Tool string
}

// Attempt is a request that was refused.
type Attempt struct {
	// Identity is the sender, the zero Identity if unproved.
	Identity identity.Identity
	// From and Tool are the fields of the Request.
	From netip.Addr
	Tool string
	// Reason is for operators, and Why for programs.
	Reason string
	Why    Reason
}

// Issue issues a certificate, and returns it once the history has it or the store did not take
// the record in time. The error is a *Refusal, or the error of ctx.
func (i *Issuer) Issue(ctx context.Context, r Request) (*authority.Certificate, identity.Identity, error) {
	signed, who, proof, err := i.issue(ctx, r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, who, ctx.Err()
		}
		refusal := asRefusal(err)
		i.refused.WithLabelValues(string(refusal.Reason)).Inc()
		i.logger.Info("certificate refused", "reason", string(refusal.Reason), "identity", who.String(), "from", address(r.From), "err", identity.Reason(err))
		if i.onRefusal != nil && refusal.Reason != Unavailable {
			i.onRefusal(Attempt{Identity: who, From: r.From, Tool: r.Tool, Reason: identity.Reason(err), Why: refusal.Reason})
		}
		return nil, who, refusal
	}
	i.issued.WithLabelValues(proof).Inc()
	i.logger.Info("certificate issued", "identity", who.String(), "serial", signed.Leaf.SerialNumber.Text(16), "ends", signed.Leaf.NotAfter, "proof", proof, "from", address(r.From))
	written := i.audit.add(note{at: time.Now(), who: who, serial: signed.Leaf.SerialNumber.Text(16), ends: signed.Leaf.NotAfter, proof: proof, from: address(r.From), tool: r.Tool})
	recorded, err := i.audit.await(ctx, written)
	if err != nil {
		return nil, who, err
	}
	if !recorded {
		i.logger.Warn("certificates are given out that the history has not got yet: the store does not take it", "identity", who.String(), "serial", signed.Leaf.SerialNumber.Text(16))
	}
	return signed, who, nil
}

func (i *Issuer) issue(ctx context.Context, r Request) (signed *authority.Certificate, who identity.Identity, proof string, err error) {
	// A credential may be good for one use, so check everything else before.
	request, err := authority.ParseRequest(r.CSR)
	if err != nil {
		return nil, who, "", &Refusal{Invalid, err}
	}
	if err := i.authority.CheckLife(r.Life); err != nil {
		return nil, who, "", err
	}
	if err := i.authority.Ready(); err != nil {
		return nil, who, "", err
	}
	var issued time.Time
	switch {
	case r.Credential != "" && !i.renews(request, r.Certificates):
		proof = byCredential
		if who, err = i.proofs.Prove(ctx, r.Credential, r.From); err != nil {
			return nil, identity.Identity{}, proof, err
		}
	case len(r.Certificates) > 0:
		if who, proof, err = i.holder(r); err != nil {
			return nil, identity.Identity{}, proof, unproven(err)
		}
		issued = authority.IssuedAt(r.Certificates[0])
	default:
		return nil, who, "", &Refusal{Unproven, errors.New("prove who you are: send a token (Authorization: Bearer TOKEN), or show a certificate of this mesh that is still valid")}
	}
	if err := i.authority.Revoked(who, issued); err != nil {
		if errors.Is(err, authority.ErrRevoked) {
			err = &Refusal{Forbidden, err}
		}
		return nil, who, proof, err
	}
	if err := request.For(who); err != nil {
		return nil, who, proof, &Refusal{Forbidden, err}
	}
	signed, err = i.authority.Sign(ctx, request, who, r.Life)
	return signed, who, proof, err
}

// holder returns the identity that the shown certificates prove, and which proof they are.
func (i *Issuer) holder(r Request) (identity.Identity, string, error) {
	if !r.Renewal {
		who, err := i.authority.Verify(r.Certificates)
		return who, byCertificate, err
	}
	who, expired, err := i.authority.VerifyRenewal(r.Certificates)
	if expired {
		return who, byExpired, err
	}
	return who, byCertificate, err
}

// renews says whether the shown certificates entitle their holder to another one for the
// identity that the request names.
func (i *Issuer) renews(request *authority.Request, shown []*x509.Certificate) bool {
	if len(shown) == 0 {
		return false
	}
	who, err := i.authority.Verify(shown)
	return err == nil && request.Names(who) && i.authority.Revoked(who, authority.IssuedAt(shown[0])) == nil
}

// unproven returns a Refusal for an unverified certificate, or err itself if the server cannot
// judge it now.
func unproven(err error) error {
	if errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return &Refusal{Unproven, err}
}

func asRefusal(err error) *Refusal {
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, identity.ErrThrottled):
		return &Refusal{Throttled, err}
	case errors.Is(err, identity.ErrUnavailable):
		return &Refusal{Unavailable, err}
	case errors.Is(err, identity.ErrUnproven):
		return &Refusal{Unproven, err}
	case errors.Is(err, identity.ErrForeign): // reported as ErrUnproven, lest a guesser learns the sort of credential
		return &Refusal{Unproven, identity.ErrUnproven}
	case errors.Is(err, storage.ErrInvalid):
		return &Refusal{Invalid, err}
	}
	return &Refusal{Unavailable, fmt.Errorf("no certificate can be signed at present: %w", err)}
}

func address(from netip.Addr) string {
	if !from.IsValid() {
		return ""
	}
	return from.String()
}
