package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// DefaultClientPort is the port in the client URL of a member whose flags name no URL.
const DefaultClientPort = "2379"

// joining lets servers join the store with a token.
type joining struct {
	*server
	limits *identity.Limited
}

func (j *joining) register() {
	j.api.Endpoint(maintenance.InvitationsPath, rest.Only(http.MethodPost, j.api.Private(j.invite)))
	j.api.Open(maintenance.JoinPath, rest.Only(http.MethodPost, j.join))
	j.api.Open(certificate.RootsPath, rest.Only(http.MethodGet, func(w http.ResponseWriter, r *http.Request) error {
		roots, err := j.roots(r.Context())
		if err == nil {
			rest.WriteJSON(w, http.StatusOK, certificate.Roots{TypeMeta: storeShape("Roots"), Roots: roots})
		}
		return err
	}))
}

func storeShape(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: maintenance.APIVersion}
}

// roots returns the roots of the server's certificate in PEM, empty if the certificate comes
// from files. In a new mesh it creates them.
func (s *server) roots(ctx context.Context) (string, error) {
	if s.security.own == nil {
		return "", nil
	}
	if s.mirror.Snapshot() == nil {
		return "", refusal.Starting("the server has not read the roots of its certificate yet: try again in a moment")
	}
	a := s.certificates.authority
	if err := a.Ensure(ctx); err != nil {
		return "", refusal.Unavailable("the server does not know the roots of its certificate, by which others know it: " + err.Error())
	}
	bundle, err := a.Bundle()
	return string(bundle), err
}

// ready returns why no server can join here; nil if one can.
func (j *joining) ready(ctx context.Context) error {
	switch {
	case j.store.members == nil:
		return refusal.Invalid("the store of this server is not one that others join: have the new server use the same etcd (--etcd-endpoints)")
	case j.o.Embedded.Cluster == nil:
		return refusal.Invalid("the store is a cluster of one that no other machine can reach: restart its server with --store-name and --store-peer-url")
	case j.store.papers == nil:
		return refusal.Invalid("the certificates of the store's members are of an authority of your own (--store-ca), or there are none: make one for the new member, and use portolan store member add")
	}
	if err := j.secrets.sealer.Ensure(ctx); err != nil {
		return fmt.Errorf("a server that joins needs the sealing keys: %w", err)
	}
	return nil
}

// A server that joins gets the keys of all secrets, so only a user who may do everything
// may invite one.
func (j *joining) invite(w http.ResponseWriter, r *http.Request) error {
	who := rest.IdentityOf(r.Context())
	if !j.keeper.May(who, access.All, access.All, "", "") {
		return refusal.Forbidden(
			fmt.Sprintf("user %q may not do everything: a server that joins has the store and the keys of all secrets, so only administrators of the whole mesh invite one", who.User))
	}
	var in maintenance.Invitation
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if in.Token != "" || in.TokenName != "" || in.Namespace != "" || in.Roots != "" || !in.Expires.IsZero() {
		return refusal.BadRequest("token, tokenName, namespace, roots and expires are of the answer: leave them out")
	}
	if err := j.ready(r.Context()); err != nil {
		return err
	}
	place, err := placeOf(in)
	if err != nil {
		return refusal.Invalid(err.Error())
	}
	ask := join.Invitation{Namespace: j.o.Mesh.GetRootNamespace(), Member: place, Sources: in.Sources}
	if in.TTL != "" {
		if ask.TTL, err = time.ParseDuration(in.TTL); err != nil || ask.TTL <= 0 {
			return refusal.BadRequest(fmt.Sprintf("ttl: %.40q is no duration such as 1h", in.TTL))
		}
	}
	roots, err := j.roots(r.Context())
	if err != nil {
		return err
	}
	made, err := j.tokens.Invite(r.Context(), ask)
	if err != nil {
		return err
	}
	j.api.Await(r.Context(), made.Revision)
	w.Header().Set("Cache-Control", "no-store")
	rest.WriteJSON(w, http.StatusCreated, maintenance.Invitation{
		TypeMeta: storeShape("StoreInvitation"), Name: place.Name, PeerURL: place.PeerURL, ClientURL: place.ClientURL, Sources: made.Spec.Sources,
		Token: made.Token, TokenName: made.Name, Namespace: made.Namespace, Expires: made.Spec.Expires, Roots: roots,
	})
	return nil
}

func placeOf(in maintenance.Invitation) (access.StoreMember, error) {
	out := access.StoreMember{Name: in.Name, PeerURL: strings.TrimSuffix(in.PeerURL, "/"), ClientURL: strings.TrimSuffix(in.ClientURL, "/")}
	if err := errors.Join(cluster.CheckName(out.Name), cluster.CheckURL(out.PeerURL)); err != nil {
		return out, err
	}
	if u, err := url.Parse(out.PeerURL); err == nil && out.ClientURL == "" {
		out.ClientURL = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), DefaultClientPort)
	}
	if err := cluster.CheckURL(out.ClientURL); err != nil {
		return out, err
	}
	for _, u := range []string{out.PeerURL, out.ClientURL} {
		if !strings.HasPrefix(u, "https:") {
			return out, fmt.Errorf("%s is plaintext, and the members of this store reach each other by TLS: use https", u)
		}
	}
	if out.PeerURL == out.ClientURL {
		return out, fmt.Errorf("%s is the peer URL and the client URL: give them two ports", out.PeerURL)
	}
	return out, nil
}

// join admits a server.
func (j *joining) join(w http.ResponseWriter, r *http.Request) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
	if !ok || token == "" {
		const reason = "nothing says that this server may join: send a token of portolan store member invite (serve --join --token-file)"
		j.joinRefused(r, reason)
		return refusal.Unauthorized(reason)
	}
	var in maintenance.JoinRequest
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	// The token is used up, so check everything else before.
	request, err := parseNameless(in.CSR)
	if err != nil {
		return refusal.Invalid(err.Error())
	}
	if err := j.ready(r.Context()); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(request.Key())
	if err != nil {
		return refusal.Invalid("the certificate request has a key that cannot be used")
	}
	key := sha256.Sum256(public)
	var from netip.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from = at.Addr().Unmap()
	}
	var member *access.StoreMember
	err = j.limits.Try(from, func() bool { return j.tokens.KnowsMember(token, key[:], from) }, func() (err error) {
		member, err = j.tokens.Admit(r.Context(), token, key[:], from)
		return err
	})
	if err != nil {
		if sort := sortOf(token); errors.Is(err, identity.ErrForeign) && sort != "" {
			err = fmt.Errorf("%w: this is %s", err, sort)
		}
		j.log(loglevel.Store).Warn("a server may not join the store", "from", from, "err", identity.Reason(err))
		if !errors.Is(err, identity.ErrUnavailable) {
			j.joinRefused(r, identity.Reason(err))
		}
		return unadmitted(err)
	}
	admission, err := j.admit(r.Context(), member, request)
	if err != nil {
		return err
	}
	j.log(loglevel.Store).Info("a server joins the store", "member", member.Name, "peerURL", member.PeerURL, "from", from)
	w.Header().Set("Cache-Control", "no-store")
	rest.WriteJSON(w, http.StatusOK, admission)
	return nil
}

// parseNameless reads a certificate request, and refuses one with names: a member gets the names in
// its token.
func parseNameless(text string) (*authority.Request, error) {
	if len(text) <= authority.MaxRequest {
		if block, _ := pem.Decode([]byte(text)); block != nil {
			csr, err := x509.ParseCertificateRequest(block.Bytes)
			if err == nil && (csr.Subject.CommonName != "" || len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.URIs)+len(csr.EmailAddresses) > 0) {
				return nil, errors.New("the certificate request asks for names: a member of the store has those of its token, so leave them out")
			}
		}
	}
	return authority.ParseRequest([]byte(text))
}

// unadmitted returns the API's error for a refused token.
func unadmitted(err error) error {
	switch {
	case errors.Is(err, identity.ErrThrottled):
		return refusal.TooMany(err.Error(), identity.RetryAfter(err))
	case errors.Is(err, identity.ErrUnproven), errors.Is(err, identity.ErrForeign):
		return refusal.Unauthorized(err.Error())
	case errors.Is(err, identity.ErrUnavailable):
		return refusal.Unavailable(err.Error())
	}
	return err
}

// admit adds a member to the cluster, unless it is there already, and returns what the new
// server needs to run it.
func (j *joining) admit(ctx context.Context, member *access.StoreMember, request *authority.Request) (*maintenance.Admission, error) {
	view, err := j.store.members.Look(ctx)
	if err != nil {
		return nil, maintenance.MemberError(err)
	}
	var voters []string
	placed := slices.ContainsFunc(view.Members, func(m cluster.Member) bool {
		return slices.Contains(m.PeerURLs, member.PeerURL) && (m.Name == "" || m.Name == member.Name)
	})
	if placed { // added by an earlier attempt, whose answer was lost
		for _, m := range view.Voters() {
			voters = append(voters, m.ClientURLs...)
		}
	} else {
		change, err := j.store.members.Add(ctx, member.Name, member.PeerURL)
		if errors.Is(err, cluster.ErrRefused) { // the cause may pass, or needs an operator
			return nil, refusal.New(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
		}
		if err != nil {
			return nil, maintenance.MemberError(err)
		}
		voters = change.Join
	}
	hosts, _ := urlHosts(member.PeerURL, member.ClientURL)
	signed, err := j.store.papers.Sign(request.Key(), hosts...)
	if err != nil {
		return nil, err
	}
	ca, caKey, err := j.store.papers.Authority()
	if err != nil {
		return nil, fmt.Errorf("%w: the authority of the store's members cannot be read: %w", storage.ErrUnavailable, err)
	}
	return &maintenance.Admission{
		TypeMeta: storeShape("StoreAdmission"), Name: member.Name, PeerURL: member.PeerURL, ClientURL: member.ClientURL, Join: voters,
		Certificate: string(signed), Authority: string(ca), AuthorityKey: string(caKey), SealingKeys: j.secrets.SealingKeys(),
	}, nil
}

// urlHosts returns the hosts of URLs, each once. secure is true if the first URL uses TLS.
func urlHosts(urls ...string) (hosts []string, secure bool) {
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		if host := u.Hostname(); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
		secure = secure || i == 0 && u.Scheme == "https"
	}
	return hosts, secure
}

// keepMember makes a member that has joined a voter, then renews the member's certificate
// until ctx ends.
func (s *server) keepMember(ctx context.Context) error {
	if s.store.papers == nil {
		return nil
	}
	if s.store.place != nil {
		s.vote(ctx, cmp.Or(s.o.Embedded.Cluster.Name, s.store.place.Name))
	}
	return s.store.papers.Run(ctx, s.log(loglevel.Store))
}

// promoteWait bounds one attempt to make a member a voter.
const promoteWait = 20 * time.Second

// vote makes the member of this server a voter once it has caught up.
func (s *server) vote(ctx context.Context, name string) {
	wait, last := retry.New(time.Second, 10*time.Second), ""
	for {
		done, err := s.promote(ctx, name)
		if done || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != last {
			last = text
			s.log(loglevel.Store).Info("the member of this server has no vote yet, it will be tried again", "member", name, "err", err)
		}
		if wait.Wait(ctx) != nil {
			return
		}
	}
}

// promote makes one attempt of vote.
func (s *server) promote(ctx context.Context, name string) (done bool, err error) {
	limited, cancel := context.WithTimeout(ctx, promoteWait)
	defer cancel()
	view, err := s.store.members.Look(limited)
	if err != nil {
		return false, err
	}
	m, err := view.Find(name)
	if err != nil || !m.Learner {
		return err == nil, err
	}
	if _, err = s.store.members.Promote(limited, name); err != nil {
		return false, err
	}
	s.log(loglevel.Store).Info("the member of this server has a vote", "member", name)
	return true, nil
}
