package proxies

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/xds/explain"
)

func someCheck() explain.AccessCheck {
	deny := &explain.PolicyRule{Action: "DENY", Policy: "authorizationpolicy/shop/deny", Field: "spec.rules[1]"}
	return explain.AccessCheck{
		Revision: 815,
		Caller:   explain.Caller{Identity: "spiffe://cluster.local/ns/shop/sa/web", Node: "sidecar~10.0.0.1~vm-3.shop~shop", Address: "10.0.0.1"},
		Request:  explain.Request{Protocol: "http/1.1", Host: "reviews.shop:9080", Port: 9080, Method: "GET", Path: "/api/1"},
		Destinations: []explain.Inbound{
			{
				Endpoints: []string{"10.0.0.2:80", "10.0.0.3:80"}, Proxies: []string{"sidecar~10.0.0.2~vm-12.shop~shop", "sidecar~10.0.0.3~vm-13.shop~shop"}, Outcome: explain.Forwarded,
				Access: &explain.Access{
					Decision: explain.Allowed, By: &explain.PolicyRule{Action: "ALLOW", Policy: "authorizationpolicy/shop/readers", Field: "spec.rules[0]"}, Reason: "spec.rules[0] of authorizationpolicy/shop/readers allows it",
					Audited: &explain.PolicyRule{Action: "AUDIT", Policy: "authorizationpolicy/shop/audit", Field: "spec.rules[0]"},
					DryRuns: []explain.DryRun{{Decision: explain.Refused, By: deny}, {Decision: explain.Refused, Unmatched: []string{"authorizationpolicy/shop/next"}}},
				},
			},
			{
				Endpoints: []string{"10.0.0.4:80"}, Proxies: []string{"sidecar~10.0.0.4~vm-14.shop~shop"}, Outcome: explain.Fails, Status: 403,
				Access: &explain.Access{Decision: explain.Refused, By: deny, Status: 403, Reason: deny.String() + " denies it", Details: "rbac_access_denied_matched_policy[ns[shop]-policy[deny]-rule[1]]"},
			},
			{Endpoints: []string{"10.0.0.5:80"}, Proxies: []string{"sidecar~10.0.0.5~vm-15.shop~shop"}, Outcome: explain.Fails, Reason: "peerauthentication/shop/default demands mutual TLS"},
		},
		Unguarded: []string{"10.0.0.6:80"},
		Outcome:   explain.PartlyFails,
	}
}

func TestAuthzCheck(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	claims, policy := filepath.Join(directory, "claims.json"), filepath.Join(directory, "policy.yaml")
	for file, text := range map[string]string{
		claims: `{"iss":"a"}`,
		policy: "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny, namespace: shop}\nspec: {action: DENY, rules: [{}]}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var asked, body string
	out, err := serving(t, func(r *http.Request) any {
		asked = r.Method + " " + r.URL.String()
		text, _ := io.ReadAll(r.Body) // nothing the second time
		body += string(text)
		return someCheck()
	}, "authz", "check", "--from", "shop/vm-3", "--to", "reviews.shop", "--port", "9080", "--ip", "10.0.0.1", "--path", "/api/1", "--method", "GET", "--header", "a=b", "--claims", claims, "-f", policy)
	if !exit.Is(err, exit.Failure) {
		t.Errorf("the error %v has another exit code", err)
	}
	clitest.Same(t, "question", asked, "POST "+explain.CheckPath+"?claims=%7B%22iss%22%3A%22a%22%7D&from=shop%2Fvm-3&header=a%3Db&ip=10.0.0.1&method=GET&path=%2Fapi%2F1&port=9080&to=reviews.shop")
	if !strings.Contains(body, `"apply"`) || !strings.Contains(body, "AuthorizationPolicy") {
		t.Errorf("the documents are not asked about: %s", body)
	}
	golden.Assert(t, out.Out, "authz-check.txt")
}

func TestAuthzCheckThatIsAllowed(t *testing.T) {
	t.Parallel()
	allowed := explain.AccessCheck{
		Caller: explain.Caller{Address: "192.0.2.1"}, Request: explain.Request{Protocol: "tcp", Host: "db.shop:5432", Port: 5432}, Outcome: explain.Forwarded,
		Destinations: []explain.Inbound{{Endpoints: []string{"10.0.0.2:5432"}, Proxies: []string{"sidecar~10.0.0.2~db.shop~shop"}, Access: &explain.Access{Decision: explain.Allowed, Reason: "no policy is for it"}}},
	}
	method := ""
	out, err := serving(t, func(r *http.Request) any { method = r.Method; return allowed }, "authz", "check", "--to", "db.shop:5432")
	if err != nil || method != http.MethodGet {
		t.Fatal(err, method)
	}
	golden.Assert(t, out.Out, "authz-check-allowed.txt")
	if out, err := serving(t, func(*http.Request) any { return allowed }, "authz", "check", "--to", "db.shop:5432", "-o", "json"); err != nil || !strings.Contains(out.Out, `"decision": "Allowed"`) {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

func TestAuthzCheckNeedsItsEnd(t *testing.T) {
	t.Parallel()
	if o := do(t, "", "authz", "check", "--from", "a"); o.Code != exit.Usage || !strings.Contains(o.Err, "--to") {
		t.Errorf("exit code %d: %s", o.Code, o.Err)
	}
	if o := do(t, "", "authz", "check", "--to", "a", "--claims", "missing.json"); o.Code != exit.Data {
		t.Errorf("exit code %d: %s", o.Code, o.Err)
	}
}

func TestExplainRefusal(t *testing.T) {
	t.Parallel()
	for details, want := range map[string]string{
		"rbac_access_denied_matched_policy[ns[shop]-policy[deny]-rule[1]]":                                                    "spec.rules[1] of authorizationpolicy/shop/deny denies it: portolan get authorizationpolicy deny -n shop -o yaml.\n",
		"rbac_access_denied_matched_policy[none]":                                                                             "No rule of the ALLOW policies that are for the workload allows it: portolan authz check --to WORKLOAD --from IDENTITY tells why.\n",
		"rbac_access_denied_matched_policy[istio-ext-authz-asked-ns[shop]-policy[ask]-rule[0]-deny-due-to-bad-CUSTOM-action]": "spec.rules[0] of authorizationpolicy/shop/ask has a provider decide, which cannot be asked: portolan get authorizationpolicy ask -n shop -o yaml.\n",
		"rbac_access_denied_matched_policy[mine]":                                                                             "The rule mine of a filter refused it, which is of no AuthorizationPolicy.\n",
		"jwt_authn_access_denied{Jwt_is_expired}":                                                                             "The token is refused (Jwt is expired), by a RequestAuthentication that is for the workload: portolan authz check --to WORKLOAD --from IDENTITY tells why.\n",
		"ext_authz_denied": "The provider of a CUSTOM policy refused it.\n",
		"ext_authz_error":  "The provider of a CUSTOM policy could not be asked.\n",
	} {
		if o := do(t, "", "explain", "refusal", details); o.Code != 0 || o.Out != want {
			t.Errorf("%s: %+v", details, o)
		}
	}
	line := `[2026-11-28T17:17:12.907Z] "GET /admin HTTP/1.1" 403 - rbac_access_denied_matched_policy[ns[shop]-policy[deny]-rule[1]] - "-" 0 19 0`
	if o := do(t, "", "explain", "refusal", line); o.Code != exit.OK || !strings.Contains(o.Out, "spec.rules[1] of authorizationpolicy/shop/deny denies it") {
		t.Errorf("a line of an access log: exit code %d, %s%s", o.Code, o.Out, o.Err)
	}
	if o := do(t, "", "explain", "refusal", "via_upstream"); o.Code != exit.Data || !strings.Contains(o.Err, "are no details of a policy") {
		t.Errorf("%+v", o)
	}
}
