package integration

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// customScene is a gateway that asks an authorizer, and a service behind the gateway.
type customScene struct {
	*server
	edge             *envoy
	port, grpc, http int // of the gateway, and of the authorizer
	asker            *authorizer
	stop             func() // ends the authorizer
	client           *http.Client
}

// newCustomScene starts an authorizer, and a mesh with extension providers, in the words of the mesh
// configuration.
func newCustomScene(t *testing.T, v protocol.Variant, providers string) *customScene {
	t.Helper()
	c := newAuthorizerScene(t)
	c.start(t, v, "extensionProviders:\n"+providers)
	return c
}

// newAuthorizerScene starts an authorizer alone.
func newAuthorizerScene(t *testing.T) *customScene {
	t.Helper()
	c := &customScene{port: freePort(t), grpc: freePort(t), http: freePort(t), asker: &authorizer{}, client: clientOf(t)}
	c.startAuthorizer(t)
	return c
}

// start starts a server with a mesh configuration, and the gateway.
func (c *customScene) start(t *testing.T, v protocol.Variant, meshConfig string) {
	t.Helper()
	c.server = startServer(t, serverOptions{meshConfig: meshConfig})
	c.apply(c.entry("['*']"), fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec: {hosts: [web.shop.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: %d}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: ["*"], gateways: [edge], http: [{route: [{destination: {host: web.shop.test}}]}]}
`, c.port, startUpstream(t, "web").port))
	c.edge = c.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
}

// entry is the service of the authorizer, for some namespaces.
func (c *customScene) entry(exportTo string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ask, namespace: shop}
spec:
  hosts: [ask.shop.test]
  exportTo: %s
  resolution: STATIC
  ports: [{number: 9000, name: grpc, protocol: GRPC}, {number: 9001, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: %d, http: %d}}]
`, exportTo, c.grpc, c.http)
}

// startAuthorizer starts the authorizer, at the ports where it was.
func (c *customScene) startAuthorizer(t *testing.T) {
	t.Helper()
	at := func(port int) net.Listener {
		l, err := net.Listen("tcp", local(port))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	c.stop = c.asker.serve(t, at(c.grpc), at(c.http))
}

// custom is a policy for the gateway that asks a provider about what the rules match.
func custom(name, provider, rules string) string {
	return authorization(name, "{selector: {matchLabels: {app: edge}}, action: CUSTOM, provider: {name: "+provider+"}, rules: "+rules+"}")
}

// set applies documents, and waits until the gateway has them.
func (c *customScene) set(documents ...string) {
	c.t.Helper()
	c.awaitSynced(c.apply(documents...), "edge")
}

// unset deletes the objects of documents, and waits until the gateway knows.
func (c *customScene) unset(documents ...string) {
	c.t.Helper()
	c.awaitSynced(c.remove(documents...), "edge")
}

// send sends a request through the gateway.
func (c *customScene) send(path string, header map[string]string, body string) (reply, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+local(c.port)+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return answer(c.client, r)
}

// expect fails unless a request gets an answer, and the authorizer is asked about it or not.
func (c *customScene) expect(what, path, want string, asked bool) {
	c.t.Helper()
	_, before := c.asker.asked()
	got, err := c.send(path, nil, "")
	_, after := c.asker.asked()
	if err != nil || got.String() != want || (after > before) != asked {
		c.t.Errorf("%s: %s: %s, %v, want %s; the authorizer was asked %d times", what, path, got, err, want, after-before)
	}
}

// awaitAnswer waits until a request gets an answer.
func (c *customScene) awaitAnswer(what, path, want string) {
	c.t.Helper()
	eventually(c.t, what, func() error {
		got, err := c.send(path, nil, "")
		if err == nil && got.String() != want {
			err = errors.New("it answers " + got.String())
		}
		return err
	})
}

// The providers of TestEnvoyCustomAnswers.
const answeringProviders = `
- name: http
  envoyExtAuthzHttp:
    service: shop/ask.shop.test
    port: 9001
    pathPrefix: /check
    includeRequestHeadersInCheck: [x-user, x-in-*]
    includeAdditionalHeadersInCheck: {x-in-who: mesh}
    headersToUpstreamOnAllow: [x-up]
    headersToDownstreamOnDeny: [X-Deny-*]
    headersToDownstreamOnAllow: [x-allow]
- {name: http-bare, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 0.3s}}
- {name: http-status, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 0.3s, statusOnError: "504"}}
- {name: http-open, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 0.3s, failOpen: true}}
- {name: http-body, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, includeRequestBodyInCheck: {maxRequestBytes: 8}}}
- {name: http-partial, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, includeRequestBodyInCheck: {maxRequestBytes: 8, allowPartialMessage: true}}}
- {name: grpc, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 0.3s}}
- {name: grpc-status, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 0.3s, statusOnError: "504"}}
- {name: grpc-open, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 0.3s, failOpen: true}}
- {name: grpc-body, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, includeRequestBodyInCheck: {maxRequestBytes: 8}}}
- {name: grpc-partial, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, includeRequestBodyInCheck: {maxRequestBytes: 8, allowPartialMessage: true}}}
- {name: grpc-bytes, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, includeRequestBodyInCheck: {maxRequestBytes: 8, packAsBytes: true}}}
`

// TestEnvoyCustomAnswers: a gateway asks an authorizer as the fields of its provider say, and does
// what the authorizer answers, or what the provider says if there is no answer.
func TestEnvoyCustomAnswers(t *testing.T) {
	type headers = map[string]string // empty for a header that is not there
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		c := newCustomScene(t, v, answeringProviders)
		provider := ""
		for _, step := range []struct {
			provider, path, body string
			header               headers
			want, says           string  // the answer, and its body if the authorizer gave it
			client, service      headers // what they see
			asked                headers
			askedPath, askedBody string
			bytes, unasked       bool
		}{
			{provider: "http", path: "/a?b=c", want: "web", header: headers{"x-user": "me", "x-in-a": "1", "x-other": "2", "authorization": "Bearer x", "x-in-who": "client", "x-up": "client"},
				askedPath: "/check/a?b=c", asked: headers{"x-user": "me", "x-in-a": "1", "x-other": "", "authorization": "Bearer x", "x-in-who": "mesh"},
				service: headers{"x-up": "ann", "x-hidden": "", "x-other": "2", "x-in-who": "client", "authorization": "Bearer x"}, client: headers{"x-allow": "yes", "x-hidden": ""}},
			{provider: "http", path: "/deny", want: "401", says: "who are you", askedPath: "/check/deny", client: headers{"x-deny-why": "unknown", "x-hidden": "", "x-allow": ""}},
			{provider: "http", path: "/a", body: "0123456789", want: "web"},
			{provider: "http-bare", path: "/a", want: "web", header: headers{"x-up": "client", "cookie": "a=b"}, askedPath: "/a", asked: headers{"x-up": "", "cookie": "", "x-in-who": ""},
				service: headers{"x-up": "client"}, client: headers{"x-allow": ""}},
			// Without headersToDownstreamOnDeny Envoy passes all of an answer that denies.
			{provider: "http-bare", path: "/deny", want: "401", says: "who are you", client: headers{"x-deny-why": "unknown", "x-hidden": "secret"}},
			{provider: "http-bare", path: "/broken", want: "403"},
			{provider: "http-bare", path: "/slow", want: "403"},
			{provider: "http-status", path: "/broken", want: "504"},
			{provider: "http-status", path: "/slow", want: "504"},
			{provider: "http-status", path: "/deny", want: "401", says: "who are you"},
			{provider: "http-open", path: "/broken", want: "web"},
			{provider: "http-open", path: "/slow", want: "web"},
			{provider: "http-open", path: "/deny", want: "401", says: "who are you"},
			{provider: "http-body", path: "/a", body: "01234567", want: "web", askedBody: "01234567"},
			{provider: "http-body", path: "/a", body: "012345678", want: "413", unasked: true},
			{provider: "http-partial", path: "/a", body: "0123456789", want: "web", askedBody: "01234567", asked: headers{"x-envoy-auth-partial-body": "true"}},
			{provider: "http-partial", path: "/a", body: "0123", want: "web", askedBody: "0123"},
			{provider: "grpc", path: "/a?b=c", want: "web", header: headers{"x-other": "2", "x-up": "client", "x-remove": "1"}, askedPath: "/a?b=c",
				asked: headers{"x-other": "2", "x-up": "client"}, service: headers{"x-up": "ann", "x-remove": "", "x-other": "2"}, client: headers{"x-allow": "yes"}},
			{provider: "grpc", path: "/deny", want: "402", says: "pay first", client: headers{"x-deny-why": "unpaid", "x-allow": ""}},
			{provider: "grpc", path: "/broken", want: "403"},
			{provider: "grpc", path: "/slow", want: "403"},
			{provider: "grpc", path: "/a", body: "0123456789", want: "web"},
			{provider: "grpc-status", path: "/broken", want: "504"},
			{provider: "grpc-status", path: "/slow", want: "504"},
			{provider: "grpc-open", path: "/broken", want: "web"},
			{provider: "grpc-open", path: "/slow", want: "web"},
			{provider: "grpc-open", path: "/deny", want: "402", says: "pay first"},
			{provider: "grpc-body", path: "/a", body: "01234567", want: "web", askedBody: "01234567"},
			{provider: "grpc-body", path: "/a", body: "012345678", want: "413", unasked: true},
			{provider: "grpc-partial", path: "/a", body: "0123456789", want: "web", askedBody: "01234567"},
			{provider: "grpc-bytes", path: "/a", body: "\xff\x00\xfe", want: "web", askedBody: "\xff\x00\xfe", bytes: true},
		} {
			if step.provider != provider {
				provider = step.provider
				c.set(custom("ask", provider, "[{}]"))
			}
			_, before := c.asker.asked()
			got, err := c.send(step.path, step.header, step.body)
			q, after := c.asker.asked()
			what := fmt.Sprintf("%s: %s %q", provider, step.path, step.body)
			if err != nil || got.String() != step.want || step.says != "" && got.body != step.says {
				t.Errorf("%s: %s %q, %v, want %s %q", what, got, got.body, err, step.want, step.says)
			}
			if (after == before) != step.unasked {
				t.Errorf("%s: the authorizer was asked %d times", what, after-before)
			}
			if step.unasked {
				continue
			}
			if step.askedPath != "" && q.path != step.askedPath || q.body != step.askedBody || q.bytes != step.bytes {
				t.Errorf("%s: the authorizer was asked about %s with the body %q, as bytes: %v", what, q.path, q.body, q.bytes)
			}
			for whose, want := range map[string]headers{"the authorizer": step.asked, "the client": step.client, "the service": step.service} {
				seen := map[string]http.Header{"the authorizer": q.header, "the client": got.header, "the service": got.echo.Header}[whose]
				for name, value := range want {
					if all := strings.Join(seen.Values(name), ", "); all != value {
						t.Errorf("%s: %s sees %s: %q, want %q", what, whose, name, all, value)
					}
				}
			}
		}
		c.expectNothingRejected()
		c.edge.expectNothingRejected()
	})
}

// The providers of TestEnvoyCustomOutage.
const losingProviders = `
- {name: http-closed, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 5s, statusOnError: "503"}}
- {name: http-open, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 5s, failOpen: true}}
- {name: grpc-closed, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 5s, statusOnError: "503"}}
- {name: grpc-open, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 5s, failOpen: true}}
`

// TestEnvoyCustomOutage: an authorizer ends while it is asked, and is back later. In between the
// gateway refuses requests, or lets them pass if the provider has failOpen. Nobody has to do
// anything for it to be asked again.
func TestEnvoyCustomOutage(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		c := newCustomScene(t, v, losingProviders)
		for _, provider := range []struct{ name, denied, away string }{
			{"http-closed", "401", "503"}, {"http-open", "401", "web"}, {"grpc-closed", "402", "503"}, {"grpc-open", "402", "web"},
		} {
			c.set(custom("ask", provider.name, "[{}]"))
			c.expect(provider.name, "/a", "web", true)
			c.expect(provider.name, "/deny", provider.denied, true)
			answered := make(chan string, 1)
			_, before := c.asker.asked()
			go func() {
				got, err := c.send("/slow", nil, "")
				answered <- fmt.Sprintf("%s, %v", got, err)
			}()
			eventually(t, provider.name+": the authorizer is asked", func() error {
				if _, after := c.asker.asked(); after == before {
					return errors.New("it is not")
				}
				return nil
			})
			c.stop()
			if got := <-answered; got != provider.away+", <nil>" {
				t.Errorf("%s: the authorizer ended, and the request got %s, want %s", provider.name, got, provider.away)
			}
			c.expect(provider.name+", away", "/a", provider.away, false)
			c.expect(provider.name+", away", "/deny", provider.away, false)
			c.startAuthorizer(t)
			c.awaitAnswer(provider.name+" is asked again", "/deny", provider.denied)
			c.expect(provider.name+", back", "/a", "web", true)
		}
		c.edge.expectNothingRejected()
	})
}

// The providers of TestEnvoyCustomBeside and TestEnvoyCustomProviderHidden.
const twoProviders = `
- {name: http, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 5s}}
- {name: grpc, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 5s}}
`

// TestEnvoyCustomBeside: what an authorizer refuses is refused whatever DENY and ALLOW say, and what
// it allows is judged by them. Policies of one provider ask about what any of them matches. Two
// providers for a gateway refuse what either matches.
func TestEnvoyCustomBeside(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		c := newCustomScene(t, v, twoProviders)
		at := func(path string) string { return "[{to: [{operation: {paths: [" + path + "]}}]}]" }
		beside := func(name, action, path string) string {
			return authorization(name, "{selector: {matchLabels: {app: edge}}, action: "+action+", rules: "+at(path)+"}")
		}
		c.set(custom("ask", "grpc", at("/p/*")))
		c.expect("a rule", "/p/a", "web", true)
		c.expect("a rule", "/p/deny", "402", true)
		c.expect("a rule that does not match", "/o/deny", "web", false)

		c.set(authorization("deny", "{targetRefs: [{group: networking.istio.io, kind: Gateway, name: edge}], action: DENY, rules: "+at("/p/*")+"}"))
		c.expect("before DENY", "/p/deny", "402", true)
		c.expect("DENY after", "/p/a", "403", true)
		c.expect("DENY elsewhere", "/o/a", "web", false)
		c.unset(beside("deny", "DENY", "/p/*"))

		c.set(beside("allow", "ALLOW", "/p/a*"))
		c.expect("before ALLOW", "/p/a/deny", "402", true)
		c.expect("ALLOW after", "/p/a", "web", true)
		c.expect("nothing allows it", "/p/b", "403", true)
		c.expect("nothing allows it, and nobody asks", "/o/a", "403", false)
		c.unset(beside("allow", "ALLOW", "/p/a*"))

		c.set(custom("more", "grpc", at("/q/*")))
		c.expect("two policies", "/p/deny", "402", true)
		c.expect("two policies", "/q/deny", "402", true)
		c.expect("two policies", "/o/deny", "web", false)

		c.set(custom("more", "http", at("/q/*")))
		c.expect("two providers", "/p/a", "403", false)
		c.expect("two providers", "/q/a", "403", false)
		c.expect("two providers", "/o/a", "web", false)
		for _, name := range []string{"ask", "more"} {
			c.awaitIssue("authorizationpolicy", name, "PTL0382", "asks another provider")
		}

		c.unset(custom("ask", "grpc", at("/p/*")))
		c.expect("the other provider alone", "/q/deny", "401", true)
		c.expect("the other provider alone", "/p/deny", "web", false)
		c.edge.expectNothingRejected()
	})
}

// TestEnvoyCustomProviderHidden: while a gateway does not see the service of a provider, what the
// policy matches is refused, and the policy says why.
func TestEnvoyCustomProviderHidden(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		c := newCustomScene(t, v, twoProviders)
		rules := "[{to: [{operation: {paths: [/p/*]}}]}]"
		for _, provider := range []struct{ name, denied string }{{"http", "401"}, {"grpc", "402"}} {
			c.set(custom("ask", provider.name, rules))
			c.expect("seen", "/p/deny", provider.denied, true)
			c.set(c.entry("[bank]"))
			c.expect("hidden by exportTo", "/p/a", "403", false)
			c.expect("hidden by exportTo", "/o/a", "web", false)
			c.awaitIssue("authorizationpolicy", "ask", "PTL0381", "is not seen by router~10.0.0.1~edge")
			c.set(c.entry("['*']"))
			c.awaitAnswer("seen again", "/p/deny", provider.denied)
			c.expect("seen again", "/p/a", "web", true)
			c.unset(c.entry("['*']"))
			c.expect("without a service", "/p/a", "403", false)
			c.set(c.entry("['*']"))
			c.awaitAnswer("with the service again", "/p/deny", provider.denied)
		}
		c.awaitNoIssue("authorizationpolicy", "ask", "PTL0381")
		c.edge.expectNothingRejected()
	})
}
