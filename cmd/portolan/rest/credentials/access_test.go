package credentials_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	root    = "istio-system"
	batches = "/apis/portolan.io/v1/batches"
)

// api is a config API that a keeper guards.
type api struct {
	*resttest.Server
	keeper *access.Keeper
	clock  time.Time // the keeper's clock; zero means real time
}

func start(t *testing.T, configure ...func(*rest.Options, *access.Options)) *api {
	t.Helper()
	out := &api{}
	var store *memory.Store
	var replica rest.Source
	out.Server = resttest.Start(t, 0, func(o *rest.Options) {
		store, replica = o.Store.(*memory.Store), o.Cache
		options := access.Options{
			Snapshot: func() *cache.Snapshot { return replica.Snapshot() }, Schemas: schema.All(), Root: root,
			Now: func() time.Time {
				if out.clock.IsZero() {
					return time.Now()
				}
				return out.clock
			},
		}
		for _, f := range configure {
			f(o, &options)
		}
		out.keeper = access.NewKeeper(options)
		o.Authenticator, o.Authorizer, o.Sealer = out.keeper, out.keeper, rest.Sealers{schema.User: out.keeper, schema.Secret: o.Sealer}
	}, func(server *rest.Server) {
		credentials.Users(server, out.keeper, store)
		credentials.JoinTokens(server, join.New(join.Options{Store: store, TrustDomain: "cluster.local", May: func(ctx context.Context, who identity.Identity) error {
			return out.keeper.MayIssueFor(rest.IdentityOf(ctx), who)
		}}))
		maintenance.Register(server, maintenance.Options{Snapshots: noSnapshots{}, Sealing: noSealing{}, Logs: noLogs{}})
	})
	return out
}

type noSnapshots struct{ maintenance.Snapshotter }

type noLogs struct{ maintenance.Logs }

func (noLogs) LogLevels() []maintenance.LogLevel { return nil }

// noSealing is a stub with one secret.
type noSealing struct{ maintenance.Sealing }

func (noSealing) SecretData(namespace, name string) (map[string][]byte, error) {
	return map[string][]byte{namespace: []byte(name)}, nil
}

func (noSealing) SealingKeys() string { return "the keys" }

func (a *api) as(t *testing.T, token, method, path, body string) resttest.Answer {
	t.Helper()
	return a.Do(t, method, path, body, func(r *http.Request) {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	})
}

// user creates a user with a token over the socket, and returns the token.
func (a *api) user(t *testing.T, name string, roles ...credentials.NewRole) string {
	t.Helper()
	body, err := json.Marshal(credentials.NewUser{Name: name, Roles: roles, Token: &credentials.NewToken{TTL: 3600}})
	if err != nil {
		t.Fatal(err)
	}
	answer := a.Local().Do(t, "POST", credentials.UsersPath, string(body))
	var made credentials.UserToken
	if err := json.Unmarshal([]byte(answer.Body), &made); err != nil || answer.Code != 201 || !strings.HasPrefix(made.Token, access.TokenPrefix) {
		t.Fatalf("%s: %d %s", name, answer.Code, answer.Body)
	}
	return made.Token
}

func document(t *testing.T, object *config.Config) string {
	t.Helper()
	text, err := config.ToJSON(object, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func entry(namespace, name string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: namespace, Name: name},
		Spec: &networking.ServiceEntry{
			Hosts: []string{name + "." + namespace}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		},
	}
}

func role(namespace, name string, rules ...spec.Rule) *config.Config {
	return &config.Config{Meta: config.Meta{GroupVersionKind: schema.Role, Namespace: namespace, Name: name}, Spec: &spec.Role{Rules: rules}}
}

func binding(namespace, name, role string, subjects ...spec.Subject) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.RoleBinding, Namespace: namespace, Name: name},
		Spec: &spec.RoleBinding{Role: role, Subjects: subjects},
	}
}

func named(user string) spec.Subject { return spec.Subject{Kind: spec.SubjectUser, Name: user} }

func batchOf(t *testing.T, verb batch.Verb, objects ...*config.Config) string {
	t.Helper()
	var operations []batch.Operation
	for _, object := range objects {
		operation, err := batch.Write(verb, object)
		if err != nil {
			t.Fatal(err)
		}
		operations = append(operations, operation)
	}
	text, err := json.Marshal(batch.New(operations...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// is fails the test unless the answer has the code and contains the words.
func is(t *testing.T, what string, a resttest.Answer, code int, words ...string) {
	t.Helper()
	if a.Code != code {
		t.Errorf("%s: %d, want %d: %s", what, a.Code, code, a.Body)
	}
	for _, word := range words {
		if !strings.Contains(a.Body, word) {
			t.Errorf("%s says nothing of %q: %s", what, word, a.Body)
		}
	}
}

const entries = "/apis/networking.istio.io/v1/namespaces/%s/serviceentries"

// TestTheFirstUserEndsAnonymity: without users, anybody on the machine may do everything that
// is not private. After the first user, everybody needs a credential.
func TestTheFirstUserEndsAnonymity(t *testing.T) {
	t.Parallel()
	a := start(t)
	shop := fmt.Sprintf(entries, "shop")
	is(t, "nobody, before", a.Do(t, "POST", shop, document(t, entry("shop", "a"))), 201)
	is(t, "nobody, what is private", a.Do(t, "GET", maintenance.SealingKeysPath, ""), 403)
	is(t, "a first user who may do nothing", a.Do(t, "POST", credentials.UsersPath, `{"name":"bob"}`), 422, "must be an administrator")
	made := a.Do(t, "POST", credentials.UsersPath, `{"name":"alice","roles":[{"role":"admin"}],"token":{"ttl":60}}`)
	is(t, "the first user", made, 201)
	var token credentials.UserToken
	if err := json.Unmarshal([]byte(made.Body), &token); err != nil {
		t.Fatal(err)
	}
	refused := a.Do(t, "GET", shop, "")
	is(t, "nobody, after", refused, 401, "this server has users")
	if refused.Header.Get(socket.SocketHeader) == "" {
		t.Error("the socket is not named")
	}
	is(t, "the user", a.as(t, token.Token, "GET", shop, ""), 200)
	is(t, "the user, what is private", a.as(t, token.Token, "GET", maintenance.SealingKeysPath, ""), 200, "the keys")
	is(t, "the socket", a.Local().Do(t, "GET", shop, ""), 200)
	is(t, "the document of the user", a.as(t, token.Token, "GET", "/apis/portolan.io/v1/namespaces/istio-system/users/alice", ""), 200, token.ID)
	history := a.as(t, token.Token, "GET", "/apis/portolan.io/v1/records", "")
	is(t, "the history", history, 200, `"user":"local"`, token.ID)
	for what, text := range map[string]string{"the history": history.Body, "the user": a.as(t, token.Token, "GET", "/apis/portolan.io/v1/users", "").Body} {
		if strings.Contains(text, token.Token) || strings.Contains(text, `"hash"`) {
			t.Errorf("%s has the token or its hash: %s", what, text)
		}
	}
	open := start(t, func(_ *rest.Options, o *access.Options) { o.AnonymousLoopback = true })
	open.user(t, "alice", credentials.NewRole{Role: "admin"})
	is(t, "nobody, with --anonymous-loopback", open.Do(t, "GET", shop, ""), 200)
}

// TestTokens: the answer is the same for each reason why a token is not valid.
func TestTokens(t *testing.T) {
	t.Parallel()
	a := start(t)
	a.clock = time.Now()
	alice, bob := a.user(t, "alice", credentials.NewRole{Role: "admin"}), a.user(t, "bob", credentials.NewRole{Role: "viewer"})
	shop := fmt.Sprintf(entries, "shop")
	is(t, "bob", a.as(t, bob, "GET", shop, ""), 200)
	add := a.as(t, alice, "POST", "/apis/portolan.io/v1/users/bob/tokens", `{"note":"laptop","ttl":7200}`)
	is(t, "another token", add, 201)
	var second credentials.UserToken
	if err := json.Unmarshal([]byte(add.Body), &second); err != nil {
		t.Fatal(err)
	}
	is(t, "a token of nobody", a.as(t, alice, "POST", "/apis/portolan.io/v1/users/carol/tokens", `{}`), 404, "no user carol")
	is(t, "bob's own", a.as(t, bob, "POST", "/apis/portolan.io/v1/users/bob/tokens", `{}`), 403, "may not update users")
	is(t, "the second", a.as(t, second.Token, "GET", shop, ""), 200)
	is(t, "a document with a hash", a.as(t, alice, "POST", batches, batchOf(t, batch.Apply, &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: "bob"},
		Spec: &spec.User{Tokens: []spec.Token{{ID: "x", Hash: spec.HashOf("mine")}}},
	})), 422, "make tokens with portolan user token add")
	// A document that lists no tokens leaves the stored ones.
	plain := &config.Config{Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: "bob"}, Spec: &spec.User{Groups: []string{"readers"}}}
	is(t, "a document without tokens", a.as(t, alice, "POST", batches, batchOf(t, batch.Apply, plain)), 200)
	is(t, "the second, still", a.as(t, second.Token, "GET", shop, ""), 200)
	is(t, "revoke", a.as(t, alice, "DELETE", "/apis/portolan.io/v1/users/bob/tokens/"+second.ID, ""), 200)
	is(t, "revoke again", a.as(t, alice, "DELETE", "/apis/portolan.io/v1/users/bob/tokens/"+second.ID, ""), 404)
	// Restoring an older document that names the token does not bring it back.
	was := &config.Config{Meta: plain.Meta, Spec: &spec.User{Groups: []string{"readers"}, Tokens: []spec.Token{{ID: second.ID}}}}
	is(t, "a document that names it", a.as(t, alice, "POST", batches, batchOf(t, batch.Restore, was)), 200)
	words := map[string]bool{}
	turnedAway := func(what, token string) {
		t.Helper()
		answer := a.as(t, token, "GET", shop, "")
		is(t, what, answer, 401)
		words[answer.Body] = true
	}
	turnedAway("a revoked token", second.Token)
	turnedAway("a guessed token", access.TokenPrefix+strings.Repeat("A", 52))
	turnedAway("no token", "x")
	bob = a.user(t, "ben", credentials.NewRole{Role: "viewer"})
	is(t, "ben", a.as(t, bob, "GET", shop, ""), 200)
	a.clock = a.clock.Add(time.Hour)
	turnedAway("an expired token", bob)
	a.clock = a.clock.Add(-time.Hour)
	is(t, "disable", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply, &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: "ben"}, Spec: &spec.User{Disabled: true},
	})), 200)
	turnedAway("a disabled user", bob)
	if len(words) != 1 {
		t.Errorf("they are told apart: %v", words)
	}
	for _, header := range []string{"Basic YTpi", "Bearer", "Bearer "} {
		is(t, header, a.Do(t, "GET", shop, "", func(r *http.Request) { r.Header.Set("Authorization", header) }), 401)
	}
}

// TestRights: what a role permits, and in which namespaces; a refused list is an error, not a
// filtered list.
func TestRights(t *testing.T) {
	t.Parallel()
	a := start(t)
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	editor := a.user(t, "ed", credentials.NewRole{Role: "editor", Namespace: "shop"})
	viewer := a.user(t, "vi", credentials.NewRole{Role: "viewer"})
	reader := a.user(t, "rea", credentials.NewRole{Role: "secret-reader", Namespace: "shop"})
	nobody := a.user(t, "no")
	is(t, "apply", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		role(root, "releaser", spec.Rule{Verbs: []string{"get", "update"}, Kinds: []string{"ServiceEntry"}, Namespaces: []string{"shop", "blog"}, Names: []string{"a"}}),
		binding(root, "rel", "releaser", spec.Subject{Kind: spec.SubjectGroup, Name: "releasers"}),
		&config.Config{Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: "rel"}, Spec: &spec.User{Groups: []string{"releasers"}}},
		entry("shop", "a"), entry("shop", "b"), entry("blog", "a"))), 200)
	made := a.Local().Do(t, "POST", "/apis/portolan.io/v1/users/rel/tokens", `{}`)
	var releaser credentials.UserToken
	if err := json.Unmarshal([]byte(made.Body), &releaser); err != nil {
		t.Fatal(err)
	}
	all := "/apis/networking.istio.io/v1/serviceentries"
	shop, blog := fmt.Sprintf(entries, "shop"), fmt.Sprintf(entries, "blog")
	for _, c := range []struct {
		who, token, method, path string
		code                     int
	}{
		{"editor", editor, "GET", shop, 200},
		{"editor", editor, "GET", blog, 403},
		{"editor", editor, "GET", all, 403},
		{"editor", editor, "GET", all + "?watch=1", 403},
		{"editor", editor, "GET", blog + "?watch=1", 403},
		{"editor", editor, "GET", "/apis/portolan.io/v1/records?namespace=shop", 200},
		{"editor", editor, "GET", "/apis/portolan.io/v1/records?namespace=blog", 403},
		{"editor", editor, "GET", "/apis/portolan.io/v1/records", 403},
		{"editor", editor, "GET", "/metrics", 403},
		{"editor", editor, "GET", "/apis", 200},
		{"editor", editor, "DELETE", shop + "/a?dryRun=All", 200},
		{"editor", editor, "DELETE", blog + "/a?dryRun=All", 403},
		{"editor", editor, "GET", "/apis/portolan.io/v1/namespaces/shop/rolebindings", 200},
		{"editor", editor, "GET", "/apis/portolan.io/v1/namespaces/istio-system/users", 403},
		{"viewer", viewer, "GET", all, 200},
		{"viewer", viewer, "GET", "/metrics", 200},
		{"viewer", viewer, "GET", maintenance.SealingPath + "/data/shop/s", 403},
		{"viewer", viewer, "GET", maintenance.SealingKeysPath, 403},
		{"viewer", viewer, "GET", maintenance.SnapshotPath, 403},
		{"viewer", viewer, "GET", maintenance.LogLevelsPath, 200},
		{"viewer", viewer, "POST", maintenance.LogLevelsPath, 403},
		{"editor", editor, "POST", maintenance.LogLevelsPath, 403},
		{"nobody", nobody, "GET", maintenance.LogLevelsPath, 403},
		{"viewer", viewer, "GET", "/debug/pprof/", 403},
		{"viewer", viewer, "GET", maintenance.LogPath, 403},
		{"viewer", viewer, "GET", maintenance.SettingsPath, 403},
		{"viewer", viewer, "DELETE", shop + "/a", 403},
		{"viewer", viewer, "POST", credentials.UsersPath, 403},
		{"secret reader", reader, "GET", maintenance.SealingPath + "/data/shop/s", 200},
		{"secret reader", reader, "GET", maintenance.SealingPath + "/data/blog/s", 403},
		{"secret reader", reader, "GET", maintenance.SealingPath + "/data/shop%2Fs/x", 403},
		{"secret reader", reader, "GET", maintenance.SealingKeysPath, 403},
		{"secret reader", reader, "GET", shop, 403},
		{"releaser", releaser.Token, "GET", shop + "/a", 200},
		{"releaser", releaser.Token, "GET", blog + "/a", 200},
		{"releaser", releaser.Token, "GET", shop + "/b", 403},
		{"releaser", releaser.Token, "GET", shop, 403},
		{"releaser", releaser.Token, "DELETE", shop + "/a", 403},
		{"nobody", nobody, "GET", shop, 403},
		{"nobody", nobody, "GET", "/version", 200},
		{"nobody", nobody, "GET", "/nothing/there", 403},
		{"nobody", nobody, "GET", credentials.SelfPath, 200},
	} {
		is(t, c.who+" "+c.method+" "+c.path, a.as(t, c.token, c.method, c.path, ""), c.code)
	}
	// The third document is refused, so nothing of the batch is done.
	three := batchOf(t, batch.Apply, entry("shop", "c"), entry("shop", "d"), entry("blog", "c"))
	for _, query := range []string{"", "?dryRun=All", "?dryRun=All&preview=bodies"} {
		is(t, "the third document"+query, a.as(t, editor, "POST", batches+query, three), 403)
	}
	is(t, "what it names", a.as(t, editor, "POST", batches, three), 403, "operations[2]", "may not create serviceentries", "in namespace blog")
	is(t, "the first document", a.as(t, editor, "GET", shop+"/c", ""), 404)
	is(t, "two documents", a.as(t, editor, "POST", batches, batchOf(t, batch.Apply, entry("shop", "c"), entry("shop", "d"))), 200)
	history := a.Local().Do(t, "GET", "/apis/portolan.io/v1/records?limit=1", "")
	is(t, "who wrote", history, 200, `"user":"ed"`)
}

// TestNobodyGivesWhatTheyDoNotHave: not by a role, a binding, both at once, a user, a token, a
// restored object or a dry run.
func TestNobodyGivesWhatTheyDoNotHave(t *testing.T) {
	t.Parallel()
	a := start(t)
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	lead := a.user(t, "lead", credentials.NewRole{Role: "admin", Namespace: "shop"})
	is(t, "apply", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		// The role helper may make users, roles and bindings, and little else.
		role(root, "helper", spec.Rule{Verbs: []string{"*"}, Kinds: []string{"users", "roles", "rolebindings", "tokenissuers"}}, spec.Rule{Verbs: []string{"get"}, Kinds: []string{"serviceentries"}}),
		binding(root, "operators", "admin", spec.Subject{Kind: spec.SubjectGroup, Name: "operators"}))), 200)
	helper := a.user(t, "help", credentials.NewRole{Role: "helper"})
	anything := spec.Rule{Verbs: []string{"*"}, Kinds: []string{"*"}}
	user := func(name string, groups ...string) *config.Config {
		return &config.Config{Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: name}, Spec: &spec.User{Groups: groups}}
	}
	for what, objects := range map[string][]*config.Config{
		"a role":                    {role(root, "mighty", anything)},
		"one's own role":            {role(root, "helper", anything)},
		"a binding":                 {binding(root, "me", "admin", named("help"))},
		"a binding of a namespace":  {binding("shop", "me", "editor", named("help"))},
		"a changed binding":         {binding(root, "operators", "admin", named("help"))},
		"a role and its binding":    {role(root, "mighty", anything), binding(root, "me", "mighty", named("help"))},
		"a binding before its role": {binding(root, "me", "mighty", named("help")), role(root, "mighty", anything)},
		"oneself in a group":        {user("help", "operators")},
		"another in a group":        {user("carol", "operators")},
		"somebody greater":          {user("alice")},
		"a role of secrets":         {role(root, "reveal", spec.Rule{Verbs: []string{"reveal"}, Kinds: []string{"secrets"}})},
		"a role of one more verb":   {role(root, "more", spec.Rule{Verbs: []string{"get", "list"}, Kinds: []string{"serviceentries"}})},
		"an issuer of tokens": {{
			Meta: config.Meta{GroupVersionKind: schema.TokenIssuer, Namespace: root, Name: "mine"},
			Spec: &spec.TokenIssuer{Issuer: "https://issuer.example", Audiences: []string{"portolan"}, Users: &spec.UserClaims{}},
		}},
		"a binding behind a fine batch": {role(root, "fine", spec.Rule{Verbs: []string{"get"}, Kinds: []string{"se"}}), binding(root, "fine", "fine", named("help")), binding(root, "me", "viewer", named("help"))},
	} {
		for _, verb := range []batch.Verb{batch.Apply, batch.Restore} {
			for _, query := range []string{"", "?dryRun=All"} {
				is(t, what+" "+string(verb)+query, a.as(t, helper, "POST", batches+query, batchOf(t, verb, objects...)), 403, "may not give away")
			}
		}
		is(t, what+", in a namespace", a.as(t, lead, "POST", batches, batchOf(t, batch.Apply, objects...)), map[bool]int{true: 403, false: 200}[what != "a binding of a namespace"])
	}
	mine := "/apis/portolan.io/v1/namespaces/istio-system/rolebindings"
	is(t, "a binding by itself", a.as(t, helper, "POST", mine, document(t, binding(root, "me", "admin", named("help")))), 403, "may not give away")
	is(t, "a replaced binding", a.as(t, helper, "PUT", mine+"/operators", document(t, binding(root, "operators", "admin", named("help")))), 403, "may not give away")
	is(t, "its status", a.as(t, helper, "PUT", mine+"/operators/status", document(t, binding(root, "operators", "admin", named("help")))), 404)
	is(t, "a token of an administrator", a.as(t, helper, "POST", "/apis/portolan.io/v1/users/alice/tokens", `{}`), 403, "may not give away")
	is(t, "a user of a role", a.as(t, helper, "POST", credentials.UsersPath, `{"name":"eve","roles":[{"role":"admin"}],"token":{}}`), 403, "may not give away")
	is(t, "a user of a group", a.as(t, helper, "POST", credentials.UsersPath, `{"name":"eve","groups":["operators"],"token":{}}`), 403, "may not give away")
	is(t, "a lesser user", a.as(t, helper, "POST", credentials.UsersPath, `{"name":"carol","roles":[{"role":"helper"}],"token":{}}`), 201)
	is(t, "a role that is none", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply, binding(root, "typo", "vieweer", named("carol")))), 403, "neither a built-in role")
	is(t, "a user elsewhere", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply, &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.User, Namespace: "shop", Name: "x"}, Spec: &spec.User{},
	})), 403, "root namespace")
	is(t, "a lead within the namespace", a.as(t, lead, "POST", batches, batchOf(t, batch.Apply,
		role("shop", "own", anything), binding("shop", "carol", "own", named("carol")))), 200)
	is(t, "what it gave", a.keeperSays("carol", "delete", "shop"), 200)
	is(t, "and no more", a.keeperSays("carol", "delete", "blog"), 403)
}

// TestTokensOfAccountsWithRights: whoever makes a join token for an account must have the
// rights of that account, by its name and as a workload.
func TestTokensOfAccountsWithRights(t *testing.T) {
	t.Parallel()
	refused := make(chan string, 100)
	a := start(t, func(o *rest.Options, _ *access.Options) {
		o.OnRefusal = func(r rest.Refusal) { refused <- r.User + ": " + r.Reason }
	})
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	issuer := a.user(t, "iss", credentials.NewRole{Role: "token-issuer"})
	lead := a.user(t, "lead", credentials.NewRole{Role: "admin", Namespace: "shop"})
	ask := func(token, namespace, account string) resttest.Answer {
		return a.as(t, token, "POST", credentials.JoinTokensPath(namespace), `{"serviceAccount":"`+account+`"}`)
	}
	is(t, "an account without rights", ask(issuer, "shop", "web"), 201)
	is(t, "apply", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		binding("shop", "ci", "editor", named("spiffe://cluster.local/ns/shop/sa/ci")),
		binding(root, "peers", "viewer", named("spiffe://cluster.local/ns/shop/sa/peer")),
	)), 200)
	for _, c := range []struct {
		who, token, account string
		code                int
		words               string
	}{
		{"an issuer, without rights", issuer, "web", 201, ""},
		{"an issuer", issuer, "ci", 403, `user \"iss\" may not make a token of spiffe://cluster.local/ns/shop/sa/ci: whoever uses it would have the right to get all kinds in namespace shop, which the user does not have`},
		{"an issuer, for the mesh", issuer, "peer", 403, "in all namespaces"},
		{"a lead of the namespace", lead, "ci", 201, ""},
		{"a lead, for the mesh", lead, "peer", 403, "in all namespaces"},
	} {
		is(t, c.who, ask(c.token, "shop", c.account), c.code, c.words)
	}
	for _, account := range []string{"web", "ci", "peer"} {
		is(t, "an administrator, for "+account, a.Local().Do(t, "POST", credentials.JoinTokensPath("shop"), `{"serviceAccount":"`+account+`"}`), 201)
	}
	for range 3 { // reported after the answer
		if told := <-refused; !strings.Contains(told, "may not make a token of") {
			t.Errorf("what is told of a refusal: %s", told)
		}
	}
	// Rights of all workloads are rights of any token's holder.
	is(t, "apply", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply, binding("shop", "all", "viewer", spec.Subject{Kind: spec.SubjectGroup, Name: spec.Workloads}))), 200)
	is(t, "an account like any", ask(issuer, "shop", "web"), 403, "in namespace shop")
}

// TestReviewsOfKubernetes: kubectl sends these reviews as protobuf messages of Kubernetes,
// other clients as JSON.
func TestReviewsOfKubernetes(t *testing.T) {
	t.Parallel()
	a := start(t)
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	ed := a.user(t, "ed", credentials.NewRole{Role: "editor", Namespace: "shop"})
	message := func(of interface{ Marshal() ([]byte, error) }) string {
		raw, err := of.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		wrapped, err := (&runtime.Unknown{Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return "k8s\x00" + string(wrapped)
	}
	review := func(namespace string) string {
		return message(&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: "networking.istio.io", Resource: "serviceentries"},
		}})
	}
	const rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	for _, c := range []struct {
		what, path, body string
		code             int
		words            string
	}{
		{"what one may", credentials.AccessReviewPath, review("shop"), 201, `"allowed":true`},
		{"what one may not", credentials.AccessReviewPath, review("blog"), 201, `"allowed":false,"reason":"user \"ed\" may not create serviceentries in namespace blog`},
		{"its kind", credentials.AccessReviewPath, review("shop"), 201, `"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1"`},
		{"all that one may", rules, message(&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "shop"}}), 201, `"serviceentries"`},
		{"nothing", credentials.AccessReviewPath, message(&authorizationv1.SelfSubjectAccessReview{}), 400, "name either"},
		{"no message", credentials.AccessReviewPath, "k8s", 400, "no message of Kubernetes"},
		{"half a message", credentials.AccessReviewPath, review("shop")[:20], 400, "cannot be read"},
		{"a message that is none", credentials.AccessReviewPath, "k8s\x00\xff\xff\xff", 400, "cannot be read"},
		{"a message that is too long", credentials.AccessReviewPath, "k8s\x00" + strings.Repeat("\x00", 1<<17), 413, ""},
	} {
		answer := a.Do(t, "POST", c.path, c.body, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+ed)
			r.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf")
		})
		is(t, c.what, answer, c.code, c.words)
	}
}

// TestTheLastUser: without users everybody on the machine may do everything, so only an
// administrator may delete the last.
func TestTheLastUser(t *testing.T) {
	t.Parallel()
	a := start(t)
	is(t, "a role", a.Local().Do(t, "POST", batches, batchOf(t, batch.Apply,
		role(root, "helper", spec.Rule{Verbs: []string{"*"}, Kinds: []string{"users"}}))), 200)
	helper := a.user(t, "help", credentials.NewRole{Role: "helper"})
	a.user(t, "carol")
	users := "/apis/portolan.io/v1/namespaces/istio-system/users/"
	is(t, "the last but one", a.as(t, helper, "DELETE", users+"carol", ""), 200)
	is(t, "the last", a.as(t, helper, "DELETE", users+"help", ""), 403, "it is the last user")
	is(t, "the last, by the owner of the server", a.Local().Do(t, "DELETE", users+"help", ""), 200)
	is(t, "nobody, again", a.Do(t, "GET", "/apis/networking.istio.io/v1/serviceentries", ""), 200)
}

// keeperSays returns 200 if the keeper lets a user do something, else another code.
func (a *api) keeperSays(user, verb, namespace string) resttest.Answer {
	if a.keeper.May(access.Identity{User: user}, verb, "serviceentries", namespace, "") {
		return resttest.Answer{Code: 200}
	}
	return resttest.Answer{Code: 403}
}

// TestWatchesEndWithTheRights: a watch ends when its binding, role, group or token is removed.
func TestWatchesEndWithTheRights(t *testing.T) {
	t.Parallel()
	a := start(t)
	a.user(t, "alice", credentials.NewRole{Role: "admin"})
	users := "/apis/portolan.io/v1/namespaces/istio-system/"
	for what, end := range map[string]func(name string, id string) resttest.Answer{
		"the binding goes": func(name, _ string) resttest.Answer {
			return a.Local().Do(t, "DELETE", users+"rolebindings/"+name+"-viewer", "")
		},
		"the user goes": func(name, _ string) resttest.Answer {
			return a.Local().Do(t, "DELETE", users+"users/"+name, "")
		},
		"the token is revoked": func(name, id string) resttest.Answer {
			return a.Local().Do(t, "DELETE", "/apis/portolan.io/v1/users/"+name+"/tokens/"+id, "")
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := strings.ReplaceAll(strings.ToLower(what), " ", "-")
			token := a.user(t, name, credentials.NewRole{Role: "viewer"})
			var stored struct {
				Spec spec.User `json:"spec"`
			}
			if err := json.Unmarshal([]byte(a.Local().Do(t, "GET", users+"users/"+name, "").Body), &stored); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, "GET", a.URL+"/apis/networking.istio.io/v1/serviceentries?watch=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := a.HTTP.Do(r)
			if err != nil || answer.StatusCode != 200 {
				t.Fatalf("%+v, %v", answer, err)
			}
			defer func() { _ = answer.Body.Close() }()
			is(t, what, end(name, stored.Spec.Tokens[0].ID), 200)
			decoder := json.NewDecoder(answer.Body)
			for {
				var event struct {
					Type   string        `json:"type"`
					Object metav1.Status `json:"object"`
				}
				if err := decoder.Decode(&event); err != nil {
					t.Fatalf("the watch ended without a word: %v", err)
				}
				if event.Type == "ERROR" {
					if event.Object.Code != 403 && event.Object.Code != 401 {
						t.Errorf("%+v", event.Object)
					}
					return
				}
			}
		})
	}
}

// TestWhoComesWhileUsersAreRead: a request that came before the users were read is refused as
// one that may be sent again, also if they are read before its rights are judged.
func TestWhoComesWhileUsersAreRead(t *testing.T) {
	t.Parallel()
	const entries = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	early := 0
	for unread := range int32(5) { // how many looks of the first request find nothing
		var looks atomic.Int32
		a := start(t, func(_ *rest.Options, o *access.Options) {
			snapshot := o.Snapshot
			o.Snapshot = func() *cache.Snapshot {
				if looks.Add(1) <= unread {
					return nil
				}
				return snapshot()
			}
		})
		switch answer := a.as(t, "", "GET", entries, ""); {
		case answer.Code == 503 && strings.Contains(answer.Body, "has not read yet who may come in: try again"):
			early++
		case answer.Code != 200:
			t.Errorf("after %d looks: %d %s", unread, answer.Code, answer.Body)
		}
		looks.Store(unread)
		if answer := a.as(t, "", "GET", entries, ""); answer.Code != 200 {
			t.Errorf("sent again: %d %s", answer.Code, answer.Body)
		}
	}
	if early == 0 {
		t.Error("no request came before the users were read")
	}
}
