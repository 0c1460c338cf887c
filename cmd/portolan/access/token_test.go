package access

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func startTokens(t *testing.T) (clitest.API, *join.Tokens) {
	t.Helper()
	var tokens *join.Tokens
	server := resttest.Start(t, 0, func(o *rest.Options) {
		tokens = join.New(join.Options{Store: o.Store, TrustDomain: "cluster.local"})
		o.Sealer = rest.Sealers{schema.JoinToken: tokens}
	}, func(s *rest.Server) { credentials.JoinTokens(s, tokens) })
	return line.On(server), tokens
}

// TestTokens makes a token, uses it, and revokes it. Only the first answer contains the token,
// and none its hash.
func TestTokens(t *testing.T) {
	t.Parallel()
	a, tokens := startTokens(t)
	made := a.Do(t, "", "token", "create", "-n", "shop", "--service-account", "web", "--uses", "2", "--cidr", "10.0.0.0/8,192.0.2.1")
	token := strings.TrimSuffix(made.Out, "\n")
	if made.Code != 0 || !join.Is(token) || strings.Contains(token, "\n") || !strings.Contains(made.Err, "is good for 2 uses as shop/web, until ") || strings.Contains(made.Err, token) {
		t.Fatalf("create: %+v", made)
	}
	_, name, _ := join.Parse(token)
	if out := a.Must(t, "", "token", "list", "-A"); !strings.Contains(out, "in 59m") || !strings.Contains(out, "0/2") || !strings.Contains(out, "10.0.0.0/8,192.0.2.1/32") {
		t.Errorf("list:\n%s", out)
	}
	for range 2 {
		if _, err := tokens.Prove(t.Context(), token, netip.MustParseAddr("10.1.1.1")); err != nil {
			t.Fatal(err)
		}
	}
	if out := a.Must(t, "", "token", "list", "-n", "shop"); !strings.Contains(out, "2/2") || !strings.Contains(out, "USED UP") {
		t.Errorf("list of what is used up:\n%s", out)
	}
	if out := a.Must(t, "", "history", "jointoken/"+name, "-n", "shop", "-o", "json"); !strings.Contains(out, "used as spiffe://cluster.local/ns/shop/sa/web, 2 of 2") || !strings.Contains(out, "10.1.1.1") {
		t.Errorf("history:\n%s", out)
	}

	var order credentials.Order
	if err := json.Unmarshal([]byte(a.Must(t, "", "token", "create", "-n", "shop", "--service-account", "api", "--ttl", "5m", "-o", "json")), &order); err != nil || order.Uses != 1 || order.ServiceAccount != "api" {
		t.Fatalf("%+v, %v", order, err)
	}
	object, err := a.Store.Get(t.Context(), schema.JoinToken, order.Name, "shop")
	if err != nil {
		t.Fatal(err)
	}
	hash := object.Spec.(*access.JoinToken).Hash
	for _, args := range [][]string{
		{"token", "list", "-A", "-o", "yaml"}, {"get", "jointokens", "-A", "-o", "json"}, {"get", "jointokens", "-n", "shop"}, {"audit", "-o", "json"}, {"export", "-n", "shop"},
		{"history", "jointoken/" + order.Name, "-n", "shop", "-o", "yaml"}, {"describe", "jointoken/" + order.Name, "-n", "shop"},
	} {
		out := a.Do(t, "", args...)
		for _, secret := range []string{token, order.Token, order.Token[len(order.Token)-52:], hex.EncodeToString(hash), base64.StdEncoding.EncodeToString(hash)} {
			if strings.Contains(out.Out+out.Err, secret) {
				t.Errorf("portolan %s has the token or its hash", strings.Join(args, " "))
			}
		}
		if args[0] == "export" && strings.Contains(out.Out, "JoinToken") {
			t.Error("export has a join token")
		}
	}

	if out := a.Must(t, "", "token", "revoke", name, "-n", "shop"); out != "jointoken/shop/"+name+" revoked\n" {
		t.Errorf("revoked: %q", out)
	}
	if out := a.Must(t, "", "token", "revoke", order.Token); !strings.Contains(out, order.Name) {
		t.Errorf("revoked by its text: %q", out)
	}
	if _, err := tokens.Prove(t.Context(), order.Token, netip.MustParseAddr("10.1.1.1")); err == nil {
		t.Error("a revoked token proves something")
	}
	if out := a.Do(t, "", "token", "list", "-A"); out.Out != "" || !strings.Contains(out.Err, "There are no join tokens.") {
		t.Errorf("an empty list: %+v", out)
	}
}

// TestTokensAreNotWritten: no document creates, changes or restores a token.
func TestTokensAreNotWritten(t *testing.T) {
	t.Parallel()
	a, _ := startTokens(t)
	token := strings.TrimSpace(a.Must(t, "", "token", "create", "-n", "shop", "--service-account", "web"))
	_, name, _ := join.Parse(token)
	document := a.Must(t, "", "get", "jointoken", name, "-n", "shop", "-o", "yaml")
	const want = "is made by portolan token create"
	refused := func(what, stdin string, args ...string) {
		t.Helper()
		if o := a.Do(t, stdin, args...); o.Code == 0 || !strings.Contains(o.Err, want) {
			t.Errorf("%s: %+v", what, o)
		}
	}
	mine := strings.Replace(document, "spec:", "spec:\n  hash: "+base64.StdEncoding.EncodeToString(make([]byte, 32)), 1)
	refused("apply", document, "apply", "-f", "-")
	refused("more uses", strings.Replace(document, "uses: 1", "uses: 100", 1), "apply", "-f", "-")
	refused("a hash of one's own", mine, "apply", "-f", "-")
	refused("a dry run", mine, "apply", "-f", "-", "--dry-run", "server")
	refused("import", mine, "import", "-f", "-")
	revision := a.Store.Version()
	a.Must(t, "", "token", "revoke", token)
	refused("a new one", strings.Replace(mine, name, "other", 1), "apply", "-f", "-")
	if o := a.Do(t, "", "rollback", "jointoken/"+name, "-n", "shop", "--to-revision", revision, "--yes"); o.Code == 0 || !strings.Contains(o.Err, want) {
		t.Errorf("a revoked token is brought back: %+v", o)
	}
	a.Must(t, "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: later, namespace: shop}\nspec: {egress: [{hosts: [./*]}]}\n", "apply", "-f", "-")
	a.Must(t, "", "rollback", "-n", "shop", "--to-revision", revision, "--yes")
	if o := a.Do(t, "", "get", "jointoken", name, "-n", "shop"); o.Code == 0 {
		t.Error("a rollback of the namespace brings a revoked token back")
	}
}

func TestTokenUsage(t *testing.T) {
	t.Parallel()
	a, _ := startTokens(t)
	for args, want := range map[string]string{
		"create":                                       "--service-account is missing",
		"create --service-account web --ttl 0":         "--ttl 0s: give a time",
		"create --service-account web --uses 0":        "--uses 0",
		"create --service-account web -o table":        "use json or yaml",
		"create --service-account web --ttl 100000h":   "a token lasts from a second to 8784h0m0s",
		"create --service-account web --cidr 10.0.0.0": "",
		"create --service-account web --cidr ten":      `"ten" is no range of addresses`,
		"create --service-account a/b":                 `service account "a/b"`,
		"revoke":                                       "requires at least 1 arg",
		"revoke nobody -n shop":                        "jointoken/shop/nobody",
		"revoke pjt_shop_x":                            "this is no join token",
	} {
		o := a.Do(t, "", append([]string{"token"}, strings.Fields(args)...)...)
		if want == "" && o.Code != 0 || want != "" && (o.Code == 0 || !strings.Contains(o.Err, want)) {
			t.Errorf("%s: %+v, want %q", args, o, want)
		}
	}
}
