package policytest

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Namespace is that of all policies.
const Namespace = "ns"

// TrustDomains are those of the mesh: its own and an alias.
func TrustDomains() []string { return []string{"td", "old.td"} }

// Group is a set of policies that apply to one workload, and requests to it.
type Group struct {
	Name string
	// TCP: the requests are connections.
	TCP      bool
	Policies []*config.Config
	// Authentications are RequestAuthentications, none for tokens of all issuers by SET-A.
	Authentications []*config.Config
	Requests        []Request
}

// Request is a request, or a connection. Empty fields have the defaults that their comments
// name.
type Request struct {
	Method, Host, Path string // GET, web.example, /
	Headers            map[string]string
	// Identity is the URI in the client's certificate without spiffe://, empty for no
	// certificate. TLS is TLS without one. SNI is the server name of TLS, none.example.
	Identity string
	TLS      bool
	SNI      string
	// Source is the address from which the client connects, and Origin what the PROXY
	// protocol says: 127.0.0.1 and Source. Address and Port are where it connects to:
	// 10.0.0.1 and 80.
	Source, Origin, Address string
	Port                    int
	// Claims are those of a token by the key ec, nil for none. Tokens are in its place.
	Claims map[string]any
	Tokens []Token
	// Want says whether the request passes: true or false. Status is that of the answer, 200 or
	// 403.
	Want   bool
	Status int
	// By is the policy and the rule that decides, such as p0[1], or what is wrong with a token;
	// empty for none.
	By string
}

// WithDefaults sets the fields that are empty, and puts the tokens into headers and the path.
func (r Request) WithDefaults() Request {
	r.Method, r.Host, r.Path = cmp.Or(r.Method, "GET"), cmp.Or(r.Host, "web.example"), cmp.Or(r.Path, "/")
	r.Source = cmp.Or(r.Source, "127.0.0.1")
	r.Origin = cmp.Or(r.Origin, r.Source)
	r.Address, r.Port = cmp.Or(r.Address, "10.0.0.1"), cmp.Or(r.Port, 80)
	if r.TLS = r.TLS || r.Identity != "" || r.SNI != ""; r.TLS {
		r.SNI = cmp.Or(r.SNI, "none.example")
	}
	r.Status = cmp.Or(r.Status, map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[r.Want])
	return r.place()
}

// URI is the identity as a certificate has it, nil for none.
func (r Request) URI() *url.URL {
	if r.Identity == "" {
		return nil
	}
	u, err := url.Parse("spiffe://" + r.Identity)
	if err != nil {
		panic(err) // of a table
	}
	return u
}

//go:embed cases.yaml
var cases []byte

// Cases returns the table. Its policies are valid.
func Cases(tb testing.TB) []Group {
	tb.Helper()
	var table []struct {
		Name                              string
		TCP                               bool
		Policies, DryRun, Authentications []json.RawMessage
		Requests                          []Request
	}
	if err := yaml.UnmarshalStrict(cases, &table); err != nil {
		tb.Fatal(err)
	}
	var out []Group
	for _, row := range table {
		group := Group{Name: row.Name, TCP: row.TCP, Requests: row.Requests}
		for i, spec := range row.Policies {
			group.Policies = append(group.Policies, read(tb, fmt.Sprintf("p%d", i), spec, false))
		}
		for i, spec := range row.Authentications {
			group.Authentications = append(group.Authentications, readAuthentication(tb, fmt.Sprintf("a%d", i), spec))
		}
		for i, spec := range row.DryRun {
			group.Policies = append(group.Policies, read(tb, fmt.Sprintf("dry%d", i), spec, true))
		}
		out = append(out, group)
	}
	return out
}

func read(tb testing.TB, name string, spec []byte, dry bool) *config.Config {
	tb.Helper()
	return decode(tb, fmt.Sprintf(`{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: %s, namespace: %s, annotations: {istio.io/dry-run: "%t"}}, spec: %s}`, name, Namespace, dry, spec))
}

// readAuthentication reads a RequestAuthentication. Its jwks are names of sets.
func readAuthentication(tb testing.TB, name string, spec []byte) *config.Config {
	tb.Helper()
	text := string(spec)
	for set := range sets() {
		text = strings.ReplaceAll(text, `"`+set+`"`, string(encode(keySet(set))))
	}
	return decode(tb, fmt.Sprintf(`{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: %s, namespace: %s}, spec: %s}`, name, Namespace, text))
}

// decode reads a valid object.
func decode(tb testing.TB, document string) *config.Config {
	tb.Helper()
	decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := schema.Pilot().Kind(decoded[0].Config.GroupVersionKind).Validate(decoded[0].Config); err != nil {
		tb.Fatalf("%s: %v", document, err)
	}
	return decoded[0].Config
}
