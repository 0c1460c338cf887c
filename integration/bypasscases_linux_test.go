package integration

import (
	"strings"
	"testing"
)

// bypasses are policies and attempts to get past them.
func bypasses(t *testing.T) []bypass {
	return []bypass{
		identities(), nobody(), forwardedFor(), behindGateway(), hostNames(), everyPort(), onlyHosts(), headerValues(), joinedHeaders(), onlyHeaders(), methods(), versions(), framing(), tokensInRequests(t),
	}
}

func ours(of ...entrance) []entrance { return of }

func everywhere() []entrance { return ours(plain, mutual, gateway) }

// identities: a caller is who its certificate says.
func identities() bypass {
	claim := "x-forwarded-client-cert: By=" + shopAccounts + "app;URI=" + shopAccounts + "client"
	return bypass{
		name:      "identities",
		documents: authorization("who", `{selector: {matchLabels: {app: app}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}, {to: [{operation: {paths: [/open]}}]}]}`),
		allowed:   get("/open"), refused: get("/secret"), entrances: ours(plain, other, gateway),
		attempts: []attempt{
			{name: "the certificate", knock: get("/secret"), at: ours(mutual), want: "http", why: "it is the caller that the policy allows"},
			{name: "a claim in X-Forwarded-Client-Cert", knock: get("/secret", claim)},
			{name: "two claims", knock: get("/secret", claim, claim)},
			{name: "a claim in HTTP/2", knock: h2("/secret", "x-forwarded-client-cert", strings.TrimPrefix(claim, "x-forwarded-client-cert: "))},
			{name: "names that Envoy uses within", knock: get("/secret", "x-envoy-peer-metadata: x", "x-envoy-internal: true", "x-envoy-original-path: /open", "x-envoy-decorator-operation: x")},
			{name: "a path of another name", knock: get("/secret", "x-original-url: /open", "x-rewrite-url: /open", "x-envoy-original-path: /open")},
		},
	}
}

// nobody: a caller in plaintext is nobody, so it is none of those that a policy denies.
func nobody() bypass {
	return bypass{
		name: "nobody",
		documents: authorization("not", `{action: DENY, rules: [{from: [{source: {notPrincipals: [cluster.local/ns/shop/sa/client]}}], to: [{operation: {paths: [/secret]}}]},
			{from: [{source: {principals: [cluster.local/ns/shop/sa/other]}}], to: [{operation: {paths: [/other]}}]}]}`),
		allowed: get("/open"), refused: get("/secret"), entrances: ours(plain, other, gateway),
		attempts: []attempt{
			{name: "who is not denied", knock: get("/secret"), at: ours(mutual), want: "http", why: "it is the caller that the policy excepts"},
			{name: "who is denied", knock: get("/other"), at: ours(other)},
			{name: "who is denied, in plaintext", knock: get("/other"), at: ours(plain), want: "http", why: "as in Istio: it proves nothing (PTL0375), so deny by notPrincipals, or demand mutual TLS"},
		},
	}
}

// spoofed are requests whose X-Forwarded-For a client writes.
func spoofed() map[string]knock {
	return map[string]knock{
		"an address": get("/secret", "x-forwarded-for: 192.0.2.1"), "two addresses": get("/secret", "x-forwarded-for: 192.0.2.1, 192.0.2.1"),
		"two headers": get("/secret", "x-forwarded-for: 192.0.2.1", "x-forwarded-for: 192.0.2.1"), "HTTP/2": h2("/secret", "x-forwarded-for", "192.0.2.1"),
	}
}

// forwardedFor: without trusted proxies, an address in X-Forwarded-For counts at no gateway. At a
// sidecar it does.
func forwardedFor() bypass {
	b := bypass{
		name:      "addresses",
		documents: authorization("from", `{rules: [{from: [{source: {remoteIpBlocks: [192.0.2.0/24]}}]}, {to: [{operation: {paths: [/open]}}]}]}`),
		allowed:   get("/open"), refused: get("/secret"), entrances: everywhere(),
		attempts: []attempt{
			{name: "other headers", knock: get("/secret", "forwarded: for=192.0.2.1", "x-real-ip: 192.0.2.1", "x-envoy-external-address: 192.0.2.1", "true-client-ip: 192.0.2.1", "x-client-ip: 192.0.2.1")},
			{name: "the PROXY protocol", knock: knock{raw: "PROXY TCP4 192.0.2.1 10.0.0.1 1 80\r\n" + get("/secret").raw}, want: "400"},
		},
	}
	for name, k := range spoofed() {
		b.attempts = append(b.attempts, attempt{name: name, knock: k, at: ours(gateway)},
			attempt{name: name, knock: k, at: ours(plain, mutual), want: "http", why: "as in Istio: a sidecar takes the address that its caller writes (PTL0380), so name the gateway by principals, too"})
	}
	return b
}

// behindGateway: addresses count at a sidecar for the gateway alone, if the policy names it.
func behindGateway() bypass {
	b := bypass{
		name:      "addresses behind the gateway",
		documents: authorization("from", `{selector: {matchLabels: {app: app}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/edge], remoteIpBlocks: [10.0.0.2]}}]}, {to: [{operation: {paths: [/open]}}]}]}`),
		allowed:   get("/open"), refused: get("/secret"), entrances: ours(plain, mutual),
		attempts: []attempt{
			{name: "by the gateway", knock: get("/secret"), at: ours(gateway), want: "http", why: "the gateway says that 10.0.0.2 calls"},
			{name: "an address by the gateway", knock: get("/secret", "x-forwarded-for: 192.0.2.1"), at: ours(gateway), want: "http", why: "the gateway adds the address of its client behind it"},
			{name: "the gateway's address", knock: get("/secret", "x-forwarded-for: 10.0.0.2")},
		},
	}
	for name, k := range spoofed() {
		b.attempts = append(b.attempts, attempt{name: name, knock: k})
	}
	return b
}

// hostNames: a host that is refused is refused however it is written.
func hostNames() bypass {
	to := func(line, host string) knock { return rawLines(line, "host: "+host, "connection: close") }
	return bypass{
		name:      "hosts",
		documents: authorization("hosts", `{action: DENY, rules: [{to: [{operation: {hosts: [admin.shop.test]}}]}]}`),
		allowed:   get("/"), refused: to("GET / HTTP/1.1", "admin.shop.test"), entrances: everywhere(),
		attempts: []attempt{
			{name: "capitals", knock: to("GET / HTTP/1.1", "ADMIN.Shop.TEST")},
			{name: "a dot at the end", knock: to("GET / HTTP/1.1", "admin.shop.test.")},
			{name: "spaces around it", knock: rawLines("GET / HTTP/1.1", "host:   admin.shop.test \t", "connection: close")},
			{name: "an absolute target", knock: to("GET http://admin.shop.test/ HTTP/1.1", "app.shop.test")},
			{name: "an absolute target for another host", knock: to("GET http://app.shop.test/ HTTP/1.1", "admin.shop.test"), want: "http", why: "the target counts (RFC 9112, section 3.2.2), and the program gets its host"},
			{name: "an absolute target of https", knock: to("GET https://admin.shop.test/ HTTP/1.1", "app.shop.test"), at: ours(plain, mutual)},
			{name: "an absolute target of https", knock: to("GET https://admin.shop.test/ HTTP/1.1", "app.shop.test"), at: ours(gateway), want: "403"},
			{name: "two headers", knock: rawLines("GET / HTTP/1.1", "host: app.shop.test", "host: admin.shop.test", "connection: close"), want: "http", why: "Envoy makes one host of both, app.shop.test,admin.shop.test, and the program gets that"},
			{name: "no header", knock: rawLines("GET / HTTP/1.1", "connection: close"), want: "400"},
			{name: "an empty header", knock: to("GET / HTTP/1.1", ""), want: "http", why: "the program gets no host"},
			{name: "two names in one header", knock: to("GET / HTTP/1.1", "app.shop.test, admin.shop.test"), want: "400"},
			{name: "an escape", knock: to("GET / HTTP/1.1", "%61dmin.shop.test"), want: "http", why: "the program gets the host as it is written"},
			{name: "a user", knock: to("GET / HTTP/1.1", "x@admin.shop.test"), want: "400"},
			{name: "HTTP/2", knock: fields(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "admin.shop.test")},
			{name: "HTTP/2 with a header host", knock: fields(":method", "GET", ":scheme", "http", ":path", "/", "host", "admin.shop.test")},
			{name: "HTTP/2 with both", knock: h2("/", "host", "admin.shop.test"), want: "http", why: "the authority counts, and the program gets it"},
			{name: "other names of the header", knock: get("/", "x-forwarded-host: admin.shop.test", "x-host: admin.shop.test"), want: "http", why: "they are no hosts: the program must not read them as such"},
			{name: "a port", knock: to("GET / HTTP/1.1", "admin.shop.test:8080"), want: "http", why: "as in Istio: hosts are compared with their port, so name admin.shop.test:* too (PTL0379)"},
		},
	}
}

// everyPort: a policy that names hosts with their ports holds.
func everyPort() bypass {
	to := func(line, host string) knock { return rawLines(line, "host: "+host, "connection: close") }
	return bypass{
		name:      "hosts with ports",
		documents: authorization("hosts", `{action: DENY, rules: [{to: [{operation: {hosts: [admin.shop.test, "admin.shop.test:*"]}}]}]}`),
		allowed:   get("/"), refused: to("GET / HTTP/1.1", "admin.shop.test"), entrances: everywhere(),
		attempts: []attempt{
			{name: "a port", knock: to("GET / HTTP/1.1", "admin.shop.test:8080")},
			{name: "the usual port", knock: to("GET / HTTP/1.1", "ADMIN.shop.test:80")},
			{name: "a dot and a port", knock: to("GET / HTTP/1.1", "admin.shop.test.:8080")},
			{name: "a port in an absolute target", knock: to("GET http://admin.shop.test:1/ HTTP/1.1", "app.shop.test")},
			{name: "a port without digits", knock: to("GET / HTTP/1.1", "admin.shop.test:")},
			{name: "HTTP/2", knock: fields(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "admin.shop.test:8080")},
		},
	}
}

// onlyHosts: an ALLOW policy with hosts takes no other.
func onlyHosts() bypass {
	to := func(line, host string) knock { return rawLines(line, "host: "+host, "connection: close") }
	return bypass{
		name:      "only a host",
		documents: authorization("hosts", `{rules: [{to: [{operation: {hosts: [app.shop.test]}}]}]}`),
		allowed:   get("/"), refused: to("GET / HTTP/1.1", "admin.shop.test"), entrances: everywhere(),
		attempts: []attempt{
			{name: "a name that begins so", knock: to("GET / HTTP/1.1", "app.shop.test.evil.test")},
			{name: "a name that ends so", knock: to("GET / HTTP/1.1", "evil-app.shop.test")},
			{name: "an absolute target", knock: to("GET http://admin.shop.test/ HTTP/1.1", "app.shop.test")},
			{name: "a user", knock: to("GET / HTTP/1.1", "app.shop.test@admin.shop.test")},
			{name: "a port", knock: to("GET / HTTP/1.1", "admin.shop.test:80")},
			{name: "HTTP/2 with both", knock: fields(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "admin.shop.test", "host", "app.shop.test")},
			{name: "two headers", knock: rawLines("GET / HTTP/1.1", "host: app.shop.test", "host: admin.shop.test", "connection: close")},
		},
	}
}

// headerValues: a header that is refused is refused however it is written.
func headerValues() bypass {
	return bypass{
		name:      "headers",
		documents: authorization("headers", `{action: DENY, rules: [{when: [{key: "request.headers[x-user]", values: [root]}]}]}`),
		allowed:   get("/", "x-user: ann"), refused: get("/", "x-user: root"), entrances: everywhere(),
		attempts: []attempt{
			{name: "a name in capitals", knock: get("/", "X-USER: root")},
			{name: "spaces around the value", knock: get("/", "x-user: \t root \t")},
			{name: "no space", knock: get("/", "x-user:root")},
			{name: "HTTP/2", knock: h2("/", "x-user", "root")},
			{name: "a name in capitals in HTTP/2", knock: h2("/", "X-User", "root"), want: "closed"},
			{name: "a space before the colon", knock: get("/", "x-user : root"), want: "400"},
			{name: "a folded line", knock: get("/", "x-user:", " root")},
			{name: "a bare carriage return", knock: get("/", "x-user: ro\rot")},
			{name: "a zero byte", knock: get("/", "x-user: root\x00"), want: "400"},
			{name: "a value in capitals", knock: get("/", "x-user: ROOT"), want: "http", why: "values are compared with their case, as in Istio: allow by value, and do not deny by it"},
			{name: "a name with an underscore", knock: get("/", "x_user: root"), want: "http", why: "it is another header: a program must not take both for one"},
			{name: "two values", knock: get("/", "x-user: ann", "x-user: root")},
			{name: "a trailer", knock: rawLines("POST / HTTP/1.1", "host: app.shop.test", "connection: close", "transfer-encoding: chunked", "trailer: x-user", "", "0", "x-user: root"), want: "http", why: "a trailer is no header: Envoy drops it, and the program does not get it"},
		},
	}
}

// joinedHeaders: of some headers Envoy makes one value of several, so that a DENY by one of them
// does not match.
func joinedHeaders() bypass {
	return bypass{
		name:      "joined headers",
		documents: authorization("headers", `{action: DENY, rules: [{when: [{key: "request.headers[user-agent]", values: [root]}]}]}`),
		allowed:   get("/", "user-agent: ann"), refused: get("/", "user-agent: root"), entrances: everywhere(),
		attempts: []attempt{
			{name: "two values", knock: get("/", "user-agent: ann", "user-agent: root"), want: "http", why: "as in Istio: the value is ann,root for the program, too, so allow by value"},
		},
	}
}

// manyValues is why an ALLOW by a header lets in a request that has it several times.
const manyValues = "as in Istio: a value that matches is enough for Envoy, so let a gateway set the header, and see to it that a program does not read the other"

// onlyHeaders: an ALLOW policy with a header takes no other value.
func onlyHeaders() bypass {
	return bypass{
		name:      "only a header",
		documents: authorization("headers", `{rules: [{when: [{key: "request.headers[x-user]", values: [ann]}]}]}`),
		allowed:   get("/", "x-user: ann"), refused: get("/", "x-user: root"), entrances: everywhere(),
		attempts: []attempt{
			{name: "none", knock: get("/")},
			{name: "two values", knock: get("/", "x-user: ann", "x-user: root"), want: "http", why: manyValues},
			{name: "two values in turn", knock: get("/", "x-user: root", "x-user: ann"), want: "http", why: manyValues},
			{name: "a list", knock: get("/", "x-user: ann,root")},
			{name: "two values in HTTP/2", knock: h2("/", "x-user", "ann", "x-user", "root"), want: "http", why: manyValues},
			{name: "an underscore", knock: get("/", "x_user: ann")},
			{name: "a trailer", knock: rawLines("POST / HTTP/1.1", "host: app.shop.test", "connection: close", "transfer-encoding: chunked", "", "0", "x-user: ann")},
			{name: "a connection header that names it", knock: rawLines("GET / HTTP/1.1", "host: app.shop.test", "connection: close, x-user", "x-user: root")},
		},
	}
}
