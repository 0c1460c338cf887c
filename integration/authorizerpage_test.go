package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestAskAnExternalAuthorizerPage applies the providers and the objects of
// docs/tasks/ask-an-external-authorizer.md, with an authorizer on this machine. What the page says of
// answers, explanations and access logs is true.
func TestAskAnExternalAuthorizerPage(t *testing.T) {
	t.Parallel()
	c := newAuthorizerScene(t)
	const page = "ask-an-external-authorizer.md"
	here := strings.NewReplacer("9000", fmt.Sprint(c.grpc), "9001", fmt.Sprint(c.http), "10.0.0.20", "127.0.0.1")
	providers := pageBlocks(t, page, "extensionProviders", 2, here)
	objects := pageObjects(t, page, 2, here)
	c.start(t, protocol.Delta, "accessLogFile: /dev/stdout\n"+providers[0]+strings.TrimPrefix(providers[1], "extensionProviders:\n"))
	c.set(objects...)
	c.expect("asked", "/orders/a", "web", true)
	c.expect("asked", "/orders/deny", "402", true)
	c.expect("no answer", "/orders/broken", "503", true)
	c.expect("not asked", "/deny", "web", false)
	const want = "asked: spec.rules[0] of authorizationpolicy/shop/orders has the provider orders decide"
	if out := c.must("", "explain", "request", "--from", "edge", "--to", fmt.Sprintf("web.shop.test:%d", c.port), "--path", "/orders/a"); !strings.Contains(out, want) {
		t.Errorf("explain does not say %q:\n%s", want, out)
	}
	eventually(t, "the access log says why", func() error {
		for _, details := range []string{"ext_authz_denied", "ext_authz_error"} {
			if !strings.Contains(c.edge.process.output(), details) {
				return fmt.Errorf("it has no %s", details)
			}
		}
		return nil
	})

	c.set(strings.Replace(objects[1], "name: orders}\n  rules", "name: login}\n  rules", 1))
	got, err := c.send("/orders/a", map[string]string{"x-device-id": "7", "x-other": "1", "x-asked-by": "me", "x-user": "me"}, "")
	q, _ := c.asker.asked()
	if err != nil || got.String() != "web" || q.path != "/check/orders/a" || q.header.Get("x-device-id") != "7" || q.header.Get("x-asked-by") != "edge" || q.header.Get("x-other") != "" {
		t.Errorf("%s, %v: it was asked about %+v", got, err, q)
	}
	if user := got.echo.Header.Get("x-user"); user != "me" {
		t.Errorf("the answer has no x-user, and the service sees %q", user)
	}
	got, err = c.send("/orders/deny", nil, "")
	if err != nil || got.status != 401 || got.header.Get("content-type") == "" || got.header.Get("x-deny-why") != "" {
		t.Errorf("%s %v, %v", got, got.header, err)
	}
	c.edge.expectNothingRejected()
}
