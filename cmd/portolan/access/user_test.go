package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func startUsers(t *testing.T) clitest.API {
	t.Helper()
	var keeper *access.Keeper
	var store *memory.Store
	return line.On(resttest.Start(t, 0, func(o *rest.Options) {
		source := o.Cache
		store = o.Store.(*memory.Store)
		keeper = access.NewKeeper(access.Options{Snapshot: func() *cache.Snapshot { return source.Snapshot() }, Schemas: schema.All(), Root: "istio-system"})
		o.Authenticator, o.Authorizer, o.Sealer = keeper, keeper, rest.Sealers{schema.User: keeper}
	}, func(s *rest.Server) { credentials.Users(s, keeper, store) }))
}

// TestUsers makes users and tokens, and uses them.
func TestUsers(t *testing.T) {
	t.Parallel()
	a := startUsers(t)
	if out := a.Must(t, "", "auth", "whoami"); !strings.Contains(out, "local") || !strings.Contains(out, "no users yet") {
		t.Errorf("whoami, before: %s", out)
	}
	if refused := a.Do(t, "", "user", "create", "bob", "--role", "viewer"); refused.Code != exit.Data || !strings.Contains(refused.Err, "--role admin") {
		t.Errorf("a first user who is no administrator: %+v", refused)
	}
	made := a.Do(t, "", "user", "create", "alice", "--role", "admin")
	alice := strings.TrimSpace(made.Out)
	if made.Code != 0 || !strings.HasPrefix(alice, access.TokenPrefix) || !strings.Contains(made.Err, "user/istio-system/alice created") || strings.Contains(made.Err, alice) {
		t.Fatalf("create: %+v", made)
	}
	file := filepath.Join(t.TempDir(), "alice.token")
	if err := os.WriteFile(file, []byte(made.Out), 0o600); err != nil {
		t.Fatal(err)
	}
	as := func(token string, args ...string) clitest.Outcome {
		return a.Do(t, "", append(args, "--token", token)...)
	}
	mine := func(args ...string) string { return a.Must(t, "", append(args, "--token-file", file)...) }
	if wrong := as("put_wrong", "user", "list"); wrong.Code != exit.Forbidden || !strings.Contains(wrong.Err, "the token is not valid") {
		t.Errorf("a wrong token: %+v", wrong)
	}
	if both := as("x", "user", "list", "--token-file", file); both.Code != exit.Usage {
		t.Errorf("both: %+v", both)
	}
	if out := a.Must(t, "", "auth", "whoami"); !strings.Contains(out, "local") || strings.Contains(out, "no users yet") {
		t.Errorf("whoami over the socket, which the command finds: %s", out)
	}
	if out := mine("auth", "whoami"); !strings.Contains(out, "alice") || !strings.Contains(out, "istio-system/alice-admin") {
		t.Errorf("whoami: %s", out)
	}
	bob := strings.TrimSpace(mine("user", "create", "bob", "--role", "editor", "-n", "shop", "--group", "shoppers", "--ttl", "1h", "--note", "laptop"))
	for line, want := range map[string]clitest.Outcome{
		"auth can-i update vs/reviews -n shop":                 {Code: 0, Out: "yes\n"},
		"auth can-i update vs reviews -n blog":                 {Code: 1, Out: "no\n", Err: `user "bob" may not update virtualservices "reviews" in namespace blog`},
		"auth can-i list virtualservices -A":                   {Code: 1, Out: "no\n"},
		"auth can-i reveal secrets -n shop":                    {Code: 1, Out: "no\n"},
		"auth can-i create leases -n shop":                     {Code: 0, Out: "yes\n"},
		"auth can-i delete namespaces -n shop":                 {Code: 1, Out: "no\n"},
		"auth can-i get records -n shop":                       {Code: 0, Out: "yes\n"},
		"auth can-i patch vs":                                  {Code: exit.Usage},
		"auth can-i get vs/a b":                                {Code: exit.Usage},
		"auth can-i get frobs":                                 {Code: exit.Usage, Err: `the server has no kind "frobs", so that nobody can be asked about it: see portolan api-resources for the kinds`},
		"auth can-i get virtalservices -n shop":                {Code: exit.Usage, Err: "did you mean virtualservices?"},
		"auth can-i get proxie -n shop":                        {Code: exit.Usage, Err: "did you mean proxies?"},
		"auth can-i get vs.networking.k8s.io":                  {Code: exit.Usage},
		"auth can-i get vs.networking.istio.io -n shop":        {Code: 0, Out: "yes\n"},
		"auth can-i get * -n shop":                             {Code: 0, Out: "yes\n"},
		"user list":                                            {Code: exit.Forbidden, Err: `user "bob" may not list users in namespace istio-system`},
		"user create eve --role viewer":                        {Code: exit.Forbidden},
		"get virtualservices -n blog":                          {Code: exit.Forbidden},
		"get virtualservices -n shop":                          {Code: 0},
		"audit -n shop":                                        {Code: 0},
		"audit":                                                {Code: exit.Forbidden},
		"user token add alice":                                 {Code: exit.Forbidden},
		"user delete alice":                                    {Code: exit.Forbidden},
		"user disable alice":                                   {Code: exit.Forbidden},
		"delete rolebinding alice-admin --yes -n istio-system": {Code: exit.Forbidden},
	} {
		got := as(bob, strings.Fields(line)...)
		if got.Code != want.Code || want.Out != "" && got.Out != want.Out || !strings.Contains(got.Err, want.Err) {
			t.Errorf("bob: %s: %+v", line, got)
		}
	}
	again := a.Do(t, "", "user", "create", "bob", "--role", "editor", "-n", "shop", "--token-file", file)
	if again.Code != exit.Failure || again.Err != "portolan: user bob is there already: portolan user token add bob makes another token, and a RoleBinding gives a role\n" {
		t.Errorf("a user who is there: %+v", again)
	}
	if out := mine("user", "list"); !strings.Contains(out, "bob") || !strings.Contains(out, "shoppers") {
		t.Errorf("list: %s", out)
	}
	tokens := mine("user", "token", "list", "bob")
	if !strings.Contains(tokens, "laptop") || !strings.Contains(tokens, "in 59m") {
		t.Errorf("tokens: %s", tokens)
	}
	second := strings.TrimSpace(mine("user", "token", "add", "bob", "--ttl", "0"))
	if out := mine("user", "token", "list", "bob"); !strings.Contains(out, "never") {
		t.Errorf("tokens: %s", out)
	}
	id := strings.Fields(strings.Split(tokens, "\n")[1])[0]
	mine("user", "token", "revoke", "bob", id)
	if code := as(bob, "auth", "whoami").Code; code != exit.Forbidden {
		t.Errorf("a revoked token: %d", code)
	}
	mine("user", "disable", "bob")
	if code := as(second, "auth", "whoami").Code; code != exit.Forbidden {
		t.Errorf("a disabled user: %d", code)
	}
	mine("user", "enable", "bob")
	if code := as(second, "auth", "whoami").Code; code != 0 {
		t.Errorf("an enabled user: %d", code)
	}
	if out := mine("user", "delete", "bob"); !strings.Contains(out, "user/istio-system/bob deleted") || !strings.Contains(out, "rolebinding/shop/bob-editor deleted") {
		t.Errorf("delete: %s", out)
	}
	mine("user", "create", "eve", "--role", "viewer", "-n", "shop", "--no-token")
	mine("delete", "user", "eve", "-n", "istio-system", "--yes")
	left := a.Do(t, "", "user", "create", "eve", "--role", "viewer", "-n", "shop", "--token-file", file)
	if left.Code != exit.Failure || left.Err != "portolan: there is no user eve, and a binding of an earlier one is left: portolan delete rolebinding/eve-viewer -n shop, and make the user then\n" {
		t.Errorf("a user whose binding is there: %+v", left)
	}
	if out := mine("auth", "roles"); !strings.Contains(out, "secret-reader") || !strings.Contains(out, "reveal secrets") {
		t.Errorf("roles: %s", out)
	}
	if out := mine("audit", "--by", "alice"); !strings.Contains(out, "alice") || strings.Contains(out, alice) {
		t.Errorf("audit: %s", out)
	}
}
