package simulate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/generate/policy/policytest"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// guarded simulates a workload to which the policies of a group apply. It asks TLS clients for
// a certificate, and does not insist.
func guarded(t *testing.T, g policytest.Group) *simulate.Proxy {
	t.Helper()
	return simulated(t, inbound(g))
}

// inbound makes the listener of such a workload.
func inbound(g policytest.Group) *listenerv3.Listener {
	return g.Listener(policytest.ListenerOptions{Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, TLS: socket.DownstreamTLS(socket.DownstreamTLSOptions{
		TLSOptions: socket.TLSOptions{Certificates: []socket.SecretRef{{Name: "default"}}, Peer: &socket.PeerValidation{Roots: socket.SecretRef{Name: "ROOTCA"}}},
	})})
}

func simulated(t *testing.T, l *listenerv3.Listener) *simulate.Proxy {
	t.Helper()
	r, err := resource.New(l.GetName(), l)
	if err != nil {
		t.Fatal(err)
	}
	p, err := simulate.New([]*resource.Resource{r})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run simulates a request of a group. It says whether the request passes, and by which rule
// the last filter decided, or what is wrong with a token.
func run(t *testing.T, p *simulate.Proxy, g policytest.Group, r policytest.Request) (passes bool, by string) {
	t.Helper()
	r = r.WithDefaults()
	request := simulate.Request{
		Inbound: true, Address: r.Address, Port: r.Port, SNI: r.SNI, Host: r.Host, Path: r.Path, Method: r.Method, Headers: r.Headers,
		Source: r.Source, Origin: r.Origin, Protocol: simulate.HTTP, Time: time.Now(),
	}
	if u := r.URI(); u != nil {
		request.Identity = u.String()
	}
	switch {
	case g.TCP && r.TLS:
		request.Protocol = simulate.TLS
	case g.TCP:
		request.Protocol = simulate.TCP
	case r.TLS:
		request.Protocol = simulate.HTTPS
	}
	result := p.Run(request)
	refusal, refused := result.Refused()
	if result.Err != nil && (!g.TCP || !errors.Is(result.Err, simulate.ErrRefused)) || !g.TCP && result.Status != r.Status {
		t.Errorf("%s: %+v: %s", g.Name, r, result)
	}
	if result.Token != nil {
		return false, result.Token.Reason
	}
	if !refused && len(result.Access) > 0 {
		refusal = result.Access[len(result.Access)-1]
	}
	if rule, ok := refusal.Rule(); ok && !refusal.Shadow {
		by = fmt.Sprintf("%s[%d]", rule.Name, rule.Rule)
	}
	return !refused && (g.TCP || result.Status == http.StatusOK), by
}

// TestPolicies: the simulation of the translated policies answers as the table says, and by
// the rule that it names; so does the evaluator.
func TestPolicies(t *testing.T) {
	t.Parallel()
	count := 0
	for _, g := range policytest.Cases(t) {
		p := guarded(t, g)
		for _, r := range g.Requests {
			count++
			if passes, by := run(t, p, g, r); passes != r.Want || r.By != "" && by != r.By {
				t.Errorf("%s: %+v: passes is %t by %q", g.Name, r, passes, by)
			}
			if len(g.Authentications) == 0 && g.Evaluate(r) != r.Want {
				t.Errorf("%s: %+v: the evaluator disagrees", g.Name, r)
			}
		}
	}
	if count < 120 {
		t.Errorf("%d cases are too few", count)
	}
}

// TestRandomPolicies: the simulation and the evaluator agree on policies and requests that
// nobody thought of.
func TestRandomPolicies(t *testing.T) {
	t.Parallel()
	const groups, requests = 1000, 10
	passed := 0
	for seed := range uint64(groups) {
		g := policytest.Draw(t, rand.New(rand.NewPCG(seed, 1)), requests)
		p := guarded(t, g)
		for _, r := range g.Requests {
			if passes, by := run(t, p, g, r); passes != r.Want {
				t.Fatalf("seed %d: %+v: passes is %t by %q\n%s", seed, r, passes, by, g)
			} else if passes {
				passed++
			}
		}
	}
	if passed < groups*requests/10 || passed > groups*requests*9/10 {
		t.Errorf("%d of %d requests pass: the draws say little", passed, groups*requests)
	}
}
