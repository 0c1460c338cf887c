package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestCredentialsOfAnotherSort: the refusal says what sort of credential it is and which is
// needed, and never quotes it.
func TestCredentialsOfAnotherSort(t *testing.T) {
	t.Parallel()
	const secret = "abcdefgh2345"
	proofs := identity.Proofs{
		join.New(join.Options{Store: memory.New(schema.Pilot(), memory.Options{}), TrustDomain: "cluster.local"}),
		oidc.New(oidc.Options{Issuers: func() ([]oidc.Issuer, bool) { return nil, true }, TrustDomain: "cluster.local"}),
		wrongSorts{},
	}
	const wanted = "a first certificate is earned by a join token (pjt_..., by portolan token create) or by a JWT of a TokenIssuer"
	for credential, want := range map[string][]string{
		access.TokenPrefix + secret:                 {"it is the token of a user", wanted},
		join.MemberPrefix + secret:                  {"it is the token of a server that joins the store", wanted},
		secret:                                      {"it is of no known sort", wanted},
		"eyJ" + secret:                              {"it is of no known sort", wanted},
		join.Prefix + secret:                        {"no such join token"},
		"eyJhbGciOiJub25lIn0.e30." + secret:         {"the token is not of an issuer that this mesh trusts"},
		"eyJhbGciOiJFUzI1NiJ9.e30." + secret + "AA": {"the token is not of an issuer that this mesh trusts"},
	} {
		_, err := proofs.Prove(t.Context(), credential, netip.MustParseAddr("10.0.0.1"))
		if !errors.Is(err, identity.ErrUnproven) || strings.Contains(identity.Reason(err), secret) {
			t.Errorf("%.4s...: %v", credential, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.4s...: %v, and not %q", credential, err, w)
			}
		}
	}
}

// TestTheFirstTokenHasTheRoots requests a join token as soon as the socket of a new mesh
// answers. The token comes with the roots, or not at all.
func TestTheFirstTokenHasTheRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Embedded: &Embedded{DataDir: dir, InProcess: true}, TLS: TLS{SecureXDSAddress: "127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler),
		})
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, member.APISocket))
	}}}
	ask := func() (int, *credentials.Order, error) {
		answer, err := client.Post("http://localhost"+credentials.JoinTokensPath("shop"), "application/json", bytes.NewReader([]byte(`{"serviceAccount": "web"}`)))
		if err != nil {
			return 0, nil, err
		}
		defer answer.Body.Close()
		made := &credentials.Order{}
		if answer.StatusCode == http.StatusCreated {
			err = json.NewDecoder(answer.Body).Decode(made)
		}
		return answer.StatusCode, made, err
	}
	var last error
	for made := (*credentials.Order)(nil); made == nil; {
		select {
		case err := <-ended:
			t.Fatalf("the server has ended: %v, after %v", err, last)
		default:
		}
		switch code, order, err := ask(); {
		case err != nil:
			last = err
		case code == http.StatusServiceUnavailable:
			last = fmt.Errorf("status %d", code)
		case code != http.StatusCreated || order.Roots == "" || order.Token == "":
			t.Fatalf("status %d, a token: %t, roots: %q", code, order.Token != "", order.Roots)
		default:
			made = order
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
