package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// authorization is an AuthorizationPolicy of the namespace shop.
func authorization(name, spec string) string {
	return "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec + "\n"
}

// keptClient asks for the status of requests on one connection.
type keptClient struct {
	m      *peerMesh
	client *http.Client
	opened int // connections
}

// kept returns a client of the network of the client, which has no sidecar there.
func (m *peerMesh) kept() *keptClient {
	c := &keptClient{m: m, client: m.client.http(m.t)}
	c.client.Transport.(*http.Transport).DisableKeepAlives = false
	return c
}

func (c *keptClient) status(port int) (string, error) {
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			c.opened++
		}
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(c.m.t.Context(), trace), http.MethodGet, fmt.Sprintf("http://10.0.0.1:%d/", port), nil)
	if err != nil {
		return "", err
	}
	got, err := answer(c.client, r)
	return got.String(), err
}

// heard says whether the workload's server of TCP, which speaks first and then repeats what it hears,
// hears a client without a sidecar. If not, the connection is closed.
func (m *peerMesh) heard() (bool, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	c, err := m.client.dial(ctx, "10.0.0.1:5432", 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	const words = "\x01hello\n"
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, words) // it may be closed already
	for from := bufio.NewReader(c); ; {
		line, err := from.ReadString('\n')
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, err
		case err != nil || line == words:
			return err == nil, nil
		}
	}
}

// TestEnvoyPolicyChanges: a policy judges the next request of a connection, and ends no connection.
func TestEnvoyPolicyChanges(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{})
		in := m.sidecarOfApp(v, identified(t, m.of, shopAccounts+"app"))
		in.awaitWarm()
		kept := m.kept()
		before := in.listenersModified()
		for _, step := range []struct{ name, documents, remove, want string }{
			{"without a policy", "", "", "http"},
			{"DENY for all", authorization("deny", "{action: DENY, rules: [{}]}"), "", "403"},
			{"without it", "", authorization("deny", "{}"), "http"},
			{"ALLOW for nobody", authorization("allow", "{}"), "", "403"},
			{"ALLOW for all, beside", authorization("all", "{rules: [{}]}"), "", "http"},
			{"for another workload", authorization("deny", "{selector: {matchLabels: {app: other}}, action: DENY, rules: [{}]}"), "", "http"},
			{"for this one", authorization("deny", "{selector: {matchLabels: {app: app}}, action: DENY, rules: [{}]}"), "", "403"},
			{"without any", "", authorization("deny", "{}") + "---\n" + authorization("allow", "{}") + "---\n" + authorization("all", "{}"), "http"},
		} {
			if step.documents != "" {
				m.awaitSynced(m.apply(step.documents), "app")
			}
			if step.remove != "" {
				m.awaitSynced(m.remove(step.remove), "app")
			}
			if step.name == "DENY for all" {
				if out := m.must("", "proxy", "config", "extension", "app"); !strings.Contains(out, "portolan.authorization.http.deny") || !strings.Contains(out, "authorizationpolicy/shop/deny") {
					t.Errorf("the filters of the proxy:\n%s", out)
				}
				dump, err := in.dumped()
				if err != nil {
					t.Fatal(err)
				}
				if out := m.try(string(dump), "proxy", "diff", "app", "--dump", "-"); out.code != 0 {
					t.Errorf("the dump differs: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
				}
			}
			if got, err := kept.status(8080); err != nil || got != step.want {
				t.Errorf("%s: %s, %v, want %s", step.name, got, err, step.want)
			}
			if heard, err := m.heard(); err != nil || heard != (step.want != "403") {
				t.Errorf("%s: the server of TCP hears: %v, %v", step.name, heard, err)
			}
		}
		if again := in.listenersModified(); kept.opened != 1 || again != before {
			t.Errorf("%d connections, and %d listeners were changed", kept.opened, again-before)
		}
		m.expectNothingRejected()
		in.expectNothingRejected()
	})
}
