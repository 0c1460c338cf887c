package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// judgedLoad sends requests of one kind and checks what each gets.
type judgedLoad struct {
	name string
	stop func()
	// allowed are the answers that a request may get that is sent meanwhile.
	allowed atomic.Pointer[[]string]
	count   atomic.Int64

	mu    sync.Mutex
	wrong []string
}

// startJudged calls a path of the service on a connection that is kept, or on new ones, through
// the sidecar of the client, some 125 times a second.
func (m *peerMesh) startJudged(path string, kept bool, allowed string) *judgedLoad {
	m.t.Helper()
	l := &judgedLoad{name: fmt.Sprintf("%s, kept %t", path, kept)}
	l.allowed.Store(&[]string{allowed})
	client := m.client.marked(m.t, captureMark)
	client.Transport.(*http.Transport).DisableKeepAlives = !kept
	l.stop = atPace(m.t, func(ctx context.Context) {
		before := *l.allowed.Load()
		got, err := m.throughBy(ctx, client, "app.shop.test", 80, path)
		if ctx.Err() != nil {
			return
		}
		after := *l.allowed.Load()
		l.count.Add(1)
		if text := got.String(); err != nil || !slices.Contains(before, text) && !slices.Contains(after, text) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.wrong = append(l.wrong, fmt.Sprintf("%s %v, may be %v or %v", text, err, before, after))
		}
	})
	return l
}

// expect fails for each request so far that got an answer that it may not get.
func (l *judgedLoad) expect(t testing.TB, during string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 {
		t.Fatalf("%s: %s: %d of %d requests: %s", during, l.name, len(l.wrong), l.count.Load(), l.wrong[0])
	}
}

// policyStep is a change of policies, with what requests get after it.
type policyStep struct {
	name, apply, remove string
	admin, open         string
}

// policySteps lead through all actions but CUSTOM. Requests for /admin are concerned, those for
// /open pass in all steps but one.
var policySteps = []policyStep{
	{"DENY of a path", authorization("a", "{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}"), "", "403", "http"},
	{"which becomes ALLOW of the other", authorization("a", "{rules: [{to: [{operation: {paths: [/open]}}]}]}"), "", "403", "http"},
	{"and DENY again", authorization("a", "{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}"), "", "403", "http"},
	{"DENY of another", authorization("a", "{action: DENY, rules: [{to: [{operation: {paths: [/other]}}]}]}"), "", "http", "http"},
	{"ALLOW from an identity", authorization("b", "{rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}], to: [{operation: {paths: [/open]}}]}]}"), "", "403", "http"},
	{"and of AUDIT", authorization("c", "{action: AUDIT, rules: [{}]}"), "", "403", "http"},
	{"ALLOW of all beside", authorization("d", "{rules: [{}]}"), "", "http", "http"},
	{"DENY of all", authorization("a", "{action: DENY, rules: [{}]}"), "", "403", "403"},
	{"none of these", "", authorization("a", "{}") + "---\n" + authorization("b", "{}") + "---\n" + authorization("c", "{}") + "---\n" + authorization("d", "{}"), "http", "http"},
	{"a token is demanded", authentication("t", `{jwtRules: [{issuer: i, jwks: '$keys'}]}`) + "---\n" + authorization("t", `{action: DENY, rules: [{from: [{source: {notRequestPrincipals: ["*"]}}], to: [{operation: {paths: [/admin]}}]}]}`), "", "403", "http"},
	{"no token any more", "", authentication("t", "{}") + "---\n" + authorization("t", "{}"), "http", "http"},
}

// withRoute changes route and service of the workload, and a policy, in one batch.
var withRoute = policyStep{
	"DENY with a route and a port of the service", authorization("a", "{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}") + `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: app, namespace: shop}
spec: {hosts: [app.shop.test], http: [{timeout: 7s, route: [{destination: {host: app.shop.test, port: {number: 80}}}]}]}
---` + strings.Replace(peerEntry, "  - {number: 90,", "  - {number: 83, name: more, protocol: HTTP, targetPort: 8080}\n  - {number: 90,", 1), "", "403", "http",
}

// TestEnvoyPoliciesUnderLoad: while policies come, change and go, each of some 500 requests a
// second gets an answer of the old or of the new policies; once the sidecars have taken these, of
// the new ones alone. A policy changes no listener, and so ends no connection.
func TestEnvoyPoliciesUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{})
		in, out := m.sidecars(v, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client"))
		eventually(t, "both talk", func() error {
			_, err := m.through(80, "/")
			return err
		})
		keys := string(jwkstest.Plain(t).Set())
		kept := m.kept()
		if got, err := kept.status(8080); err != nil || got != "http" {
			t.Fatalf("%s, %v", got, err)
		}
		last := policyStep{admin: "http", open: "http"}
		var loads []*judgedLoad
		for _, path := range []string{"/admin", "/open"} {
			loads = append(loads, m.startJudged(path, true, "http"), m.startJudged(path, false, "http"))
		}
		listeners := in.listenersModified()
		for i, step := range append(policySteps, withRoute) {
			may := func(admin, open []string) {
				for i, l := range loads {
					l.allowed.Store([]*[]string{&admin, &open}[i/2])
				}
			}
			may([]string{last.admin, step.admin}, []string{last.open, step.open})
			if step.apply != "" {
				m.must(strings.Replace(step.apply, "$keys", keys, 1), "apply", "-f", "-", "--wait")
			} else {
				m.awaitSynced(m.remove(step.remove), "app")
			}
			may([]string{step.admin}, []string{step.open})
			for _, l := range loads {
				begin := l.count.Load()
				eventually(t, "requests after "+step.name, func() error {
					if n := l.count.Load() - begin; n < 25 {
						return fmt.Errorf("%s: %d", l.name, n)
					}
					return nil
				})
				l.expect(t, step.name)
			}
			if modified := in.listenersModified() - listeners; i < len(policySteps) && modified != 0 {
				t.Errorf("%s: %d listeners were changed", step.name, modified)
			}
			last = step
			if i == len(policySteps)-1 {
				if got, err := kept.status(8080); err != nil || got != "http" || kept.opened != 1 {
					t.Errorf("a connection that is kept: %s, %v, %d were opened", got, err, kept.opened)
				}
			}
		}
		for _, l := range loads {
			l.stop()
			l.expect(t, "the end")
			t.Logf("%s: %d requests", l.name, l.count.Load())
		}
		m.expectNothingRejected()
		in.expectNothingRejected()
		out.expectNothingRejected()
	})
}

// TestEnvoyPolicyBecomesAnother: DENY of a path becomes ALLOW of another, and DENY again. Each of many
// requests for the path is refused, also those that come when the proxy has taken half of a change.
func TestEnvoyPolicyBecomesAnother(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{})
		m.sidecars(v, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client"))
		m.must(policySteps[0].apply, "apply", "-f", "-", "--wait")
		eventually(t, "the path is refused", func() error {
			got, err := m.through(80, "/admin")
			if err == nil && got.String() != "403" {
				err = errors.New(got.String())
			}
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		var sent, passed atomic.Int64
		var clients sync.WaitGroup
		for range 4 {
			client := m.client.marked(m.t, captureMark)
			client.Transport.(*http.Transport).DisableKeepAlives = false
			clients.Go(func() {
				for ctx.Err() == nil {
					got, err := m.throughBy(ctx, client, "app.shop.test", 80, "/admin")
					if ctx.Err() != nil {
						return
					}
					if sent.Add(1); err != nil || got.String() != "403" {
						passed.Add(1)
					}
				}
			})
		}
		for range 12 {
			for _, step := range policySteps[1:3] {
				m.must(step.apply, "apply", "-f", "-", "--wait")
			}
		}
		cancel()
		clients.Wait()
		if t.Logf("%d requests", sent.Load()); passed.Load() > 0 || sent.Load() < 500 {
			t.Errorf("%d of %d requests passed, or failed", passed.Load(), sent.Load())
		}
	})
}
