package policytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/config"
)

// pool has values of one attribute, and values of policies about it.
type pool struct{ values, policies []string }

func pools() map[string]pool {
	identities := []string{"td/ns/shop/sa/web", "old.td/ns/shop/sa/web", "far.td/ns/shop/sa/web", "td/ns/shop-2/sa/db", "td/ns/ns/sa/web.v1", "old.td/ns/ns/sa/webxv1"}
	hosts := []string{"web.example", "WEB.example", "db.example", "web.example:80"}
	return map[string]pool{
		"identity":  {identities, append([]string{"*", "td/*", "td/ns/shop*", "*/sa/web", "*.v1", "cluster.local/ns/shop/sa/web", "far.td/*", "*.td/ns/shop/sa/web"}, identities...)},
		"namespace": {nil, []string{"shop", "shop*", "*-2", "ns", "*", "n"}},
		"account":   {nil, []string{"shop/web", "web.v1", "ns/web.v1", "shop-2/db", "web"}},
		"domain":    {nil, []string{"td", "*td", "old*", "far.td", "*"}},
		"address":   {[]string{"127.0.0.1", "127.0.0.2", "127.0.0.9"}, []string{"127.0.0.2", "127.0.0.0/29", "127.0.0.0/8", "127.0.0.9/32", "10.0.0.0/8"}},
		"origin":    {[]string{"", "1.2.3.4", "1.2.4.4", "9.9.9.9"}, []string{"1.2.3.4", "1.2.3.0/24", "1.2.0.0/16", "0.0.0.0/0"}},
		"local":     {[]string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2/31", "10.0.0.0/8"}},
		"port":      {[]string{"80", "81", "8080"}, []string{"80", "81", "8080"}},
		"host":      {hosts, append([]string{"*", "*.example", "web.*", "WEB*"}, hosts...)},
		"method":    {[]string{"GET", "POST", "PUT", "DELETE"}, []string{"GET", "P*", "*T", "*", "DELETE"}},
		"path":      {[]string{"/", "/a", "/a/", "/a/b", "/a/b/c", "/a//c", "/A", "/a?b=/c", "/a/b/c.txt?x"}, []string{"/", "/a", "/a/*", "*c", "*", "*.txt", "/a/{*}", "/a/{**}", "/{*}/b/{**}", "/a/{**}/c", "/{**}/c"}},
		"header":    {[]string{"", "1", "10", "01", "2"}, []string{"1", "1*", "*1", "*", "2"}},
		"name":      {[]string{"", "web.shop", "db.shop", "other"}, []string{"web.shop", "*.shop", "web*", "*"}},
		"token":     {nil, []string{"*", "https://i/ann", "https://i/*", "https://i*", "https://i/a*", "*/ann", "*n", "*i/bob", "https://i/t/ann", "https://other/x"}},
		"claim":     {nil, []string{"admin", "a*", "*r", "*", "dev", "boss"}},
	}
}

// drawer draws policies and requests from pools.
type drawer struct {
	*rand.Rand
	pools map[string]pool
	tcp   bool
}

// Draw draws some policies for one workload and requests to it, with the evaluator's answers.
func Draw(tb testing.TB, random *rand.Rand, requests int) Group {
	tb.Helper()
	d := drawer{random, pools(), random.IntN(4) == 0}
	g := Group{Name: "drawn", TCP: d.tcp}
	for i := range 1 + d.IntN(3) {
		spec, err := json.Marshal(d.policy())
		if err != nil {
			tb.Fatal(err)
		}
		g.Policies = append(g.Policies, read(tb, fmt.Sprintf("p%d", i), spec, d.IntN(10) == 0 && !strings.Contains(string(spec), "AUDIT")))
	}
	for range requests {
		r := d.request()
		r.Want = g.Evaluate(r)
		g.Requests = append(g.Requests, r)
	}
	return g
}

// String returns the policies as YAML.
func (g Group) String() string {
	var out []string
	for _, c := range g.Policies {
		text, err := yaml.Marshal(map[string]any{"name": c.Name, "annotations": c.Annotations, "spec": specOf(c)})
		out = append(out, fmt.Sprintf("%s%v", text, err))
	}
	return strings.Join(out, "---\n")
}

func specOf(c *config.Config) any { return c.Spec }

type object = map[string]any

func (d drawer) policy() object {
	action := []string{"ALLOW", "ALLOW", "DENY", "AUDIT"}[d.IntN(4)]
	out := object{"action": action}
	var rules []object
	for range d.IntN(3) {
		rules = append(rules, d.rule())
	}
	if len(rules) == 0 && action == "DENY" {
		rules = append(rules, d.rule())
	}
	if len(rules) > 0 {
		out["rules"] = rules
	}
	return out
}

func (d drawer) rule() object {
	out := object{}
	var from, to, when []object
	for range d.IntN(3) {
		from = append(from, object{"source": d.fields(d.sources())})
	}
	for range d.IntN(3) {
		to = append(to, object{"operation": d.fields(map[string]string{"hosts": "host", "methods": "method", "paths": "path", "ports": "port"})})
	}
	for range max(0, d.IntN(4)-1) {
		when = append(when, d.condition())
	}
	for name, list := range map[string][]object{"from": from, "to": to, "when": when} {
		if len(list) > 0 {
			out[name] = list
		}
	}
	return out
}

// sources are the fields of a source: accounts exclude principals and namespaces.
func (d drawer) sources() map[string]string {
	out := map[string]string{"requestPrincipals": "token", "trustDomains": "domain", "ipBlocks": "address", "remoteIpBlocks": "origin"}
	if d.IntN(3) == 0 {
		out["serviceAccounts"] = "account"
		return out
	}
	out["principals"], out["namespaces"] = "identity", "namespace"
	return out
}

// fields sets one or two of the fields, negated at times.
func (d drawer) fields(of map[string]string) object {
	names := sorted(of)
	out := object{}
	for range 1 + d.IntN(2) {
		name := names[d.IntN(len(names))]
		values := d.some(of[name])
		if d.IntN(3) == 0 {
			name = "not" + strings.ToUpper(name[:1]) + name[1:]
		}
		out[name] = values
	}
	return out
}

func (d drawer) condition() object {
	of := map[string]string{
		"source.ip": "address", "remote.ip": "origin", "source.namespace": "namespace", "source.principal": "identity", "source.serviceAccount": "account",
		"source.trustDomain": "domain", "request.auth.principal": "token", "request.auth.audiences": "claim", "request.auth.presenter": "claim",
		"request.auth.claims[groups]": "claim", "request.auth.claims[a][b]": "claim", "destination.ip": "local", "destination.port": "port",
		"connection.sni": "name", "request.headers[x-a]": "header",
	}
	names := sorted(of)
	key := names[d.IntN(len(names))]
	out := object{"key": key}
	if d.IntN(3) > 0 {
		out["values"] = d.some(of[key])
	}
	if len(out) == 1 || d.IntN(4) == 0 {
		out["notValues"] = d.some(of[key])
	}
	return out
}

// some draws one to three values of a policy.
func (d drawer) some(of string) []string {
	var out []string
	for range 1 + d.IntN(3) {
		out = append(out, d.one(d.pools[of].policies))
	}
	return out
}

func (d drawer) one(list []string) string { return list[d.IntN(len(list))] }

func (d drawer) request() Request {
	value := func(of string) string { return d.one(d.pools[of].values) }
	r := Request{
		Method: value("method"), Host: value("host"), Path: value("path"), Source: value("address"), Origin: value("origin"),
		Address: value("local"), Port: map[string]int{"80": 80, "81": 81, "8080": 8080}[value("port")],
	}
	if header := value("header"); header != "" {
		r.Headers = map[string]string{"x-a": header}
	}
	if d.IntN(4) > 0 {
		r.Identity, r.SNI, r.TLS = value("identity"), value("name"), true
	}
	if d.IntN(2) == 0 && !d.tcp {
		r.Claims = map[string]any{"iss": d.one([]string{"https://i", "https://i/t", "https://other"}), "sub": d.one([]string{"ann", "bob"})}
		for _, name := range []string{"aud", "azp", "groups"} {
			switch d.IntN(3) {
			case 0:
				r.Claims[name] = d.one([]string{"admin", "dev"})
			case 1:
				r.Claims[name] = []any{"other", d.one([]string{"admin", "dev"})}
			}
		}
		if d.IntN(2) == 0 {
			r.Claims["a"] = map[string]any{"b": d.one([]string{"admin", "boss"})}
		}
	}
	return r
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
