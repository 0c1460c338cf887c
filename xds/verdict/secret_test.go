package verdict_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// sealed returns a secret with a certificate for some names, valid between from and to, and its
// key.
func sealed(name, names string, from, to time.Time) string {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: %s}, type: kubernetes.io/tls, sealed: {content: c,
		entries: [{name: tls.crt, bytes: 1}, {name: tls.key, bytes: 1}],
		certificates: [{entry: tls.crt, subject: CN=%s, names: [%s], notBefore: %q, notAfter: %q}, {entry: tls.crt, subject: CN=ca, notBefore: %[7]q, notAfter: %[8]q, authority: true}]}}`,
		short, namespace, short, names, from.Format(time.RFC3339), to.Format(time.RFC3339), from.Add(-1000*24*time.Hour).Format(time.RFC3339), to.Add(1000*24*time.Hour).Format(time.RFC3339))
}

// TestCertificatesEnd: the verdicts on a certificate follow the clock, and an incremental index
// equals one from nothing.
func TestCertificatesEnd(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	end := start.Add(90 * 24 * time.Hour)
	w := xdstest.NewWorld(t, sealed("door", "a.example.com", start, end), sealed("window", "b.example.com", start, end.Add(365*24*time.Hour)))
	var x *index.Index
	for _, step := range []struct {
		at   time.Time
		want string
	}{
		{time.Unix(0, 0), ""},
		{start.Add(-time.Hour), `"CN=door" is not valid before 2030-01-01T00:00:00Z: peers refuse it`},
		{start, ""},
		{end.Add(-30 * 24 * time.Hour), ""},
		{end.Add(-30*24*time.Hour + time.Minute), `"CN=door" ends on 2030-04-01T00:00:00Z`},
		{end.Add(-time.Minute), `"CN=door" ends on 2030-04-01T00:00:00Z`},
		{end, `"CN=door" ended on 2030-04-01T00:00:00Z: peers refuse it`},
		{end.Add(-time.Minute), `"CN=door" ends on 2030-04-01T00:00:00Z`},
		{start, ""},
	} {
		facts := verdict.Facts{Mesh: w.Context(), Minute: step.at.Unix() / 60}
		x = x.Next(facts)
		var got []string
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				if l.Of.Name == "door" {
					got = append(got, v.Message)
				}
				if v.Code != verdict.CertificateEnds || v.Field != "data[tls.crt]" || v.Remedy == "" {
					t.Errorf("%+v", v)
				}
			}
		}
		if got := strings.Join(got, "; "); !strings.HasPrefix(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("on %s: %s", step.at, got)
		}
		if diff := cmp.Diff(said((*index.Index)(nil).Next(facts)), said(x)); diff != "" {
			t.Errorf("on %s (-from nothing +by increments)\n%s", step.at, diff)
		}
	}
}

// TestAMissingSecretMayBeInACluster: the remedy names --secrets-kube where clusters are followed.
func TestAMissingSecretMayBeInACluster(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: door, namespace: shop}, spec: {selector: {app: edge},
		servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: SIMPLE, credentialName: door}}]}}`)
	east, shop := pmap.Map[bool]{}.Set("east", true), pmap.Map[bool]{}.Set("shop", true)
	for _, test := range []struct {
		flags, namespaces pmap.Map[bool]
		or                string
	}{
		{},
		{flags: east, or: ", or store it in the namespace shop of a cluster, and name that namespace in serve --secrets-kube"},
		{flags: east, namespaces: shop, or: ", or store it in the namespace shop of a cluster whose secrets are read there (portolan source list)"},
	} {
		x := (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), FlagClusters: test.flags, SecretNamespaces: test.namespaces})
		found := false
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				if v.Code == verdict.CertificateMissing {
					found = strings.HasSuffix(v.Remedy, "the server opens by itself"+test.or)
				}
			}
		}
		if !found {
			t.Errorf("there is no verdict that ends with %q", test.or)
		}
	}
}

// TestSecretsThatAreNotRead: a Gateway whose certificate is missing has the reason why the secrets of
// a cluster are not read, as long as that lasts.
func TestSecretsThatAreNotRead(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: door, namespace: shop}, spec: {selector: {app: edge},
		servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: SIMPLE, credentialName: door}}]}}`)
	var x *index.Index
	for _, reason := range []string{"", "cluster east: the account may not list secrets", "cluster east: connection refused", ""} {
		w.SetClusterSecrets(clustersecret.Set{}.WithFault("shop", reason))
		facts := verdict.Facts{Mesh: w.Context()}
		x = x.Next(facts)
		found := false
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				if v.Code == verdict.CertificateMissing {
					found = true
					if got := strings.Contains(v.Remedy, "have the secrets of that namespace read ("+reason+")"); got != (reason != "") {
						t.Errorf("%q: the remedy is %s", reason, v.Remedy)
					}
				}
			}
		}
		if !found {
			t.Errorf("%q: there is no verdict", reason)
		}
		if diff := cmp.Diff(said((*index.Index)(nil).Next(facts)), said(x)); diff != "" {
			t.Errorf("%q (-from nothing +by increments)\n%s", reason, diff)
		}
	}
}

// TestSecretsThatCannotBeOpened: a secret has a verdict until the server has its key.
func TestSecretsThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, sealed("door", "a.example.com", time.Now(), time.Now()))
	ring, id := seal.Ring{}.WithNew()
	other, _ := seal.Ring{}.WithNew()
	in := w.Context().Inputs()
	const path = "core/Secret/default/door"
	object := *in.Configs.Configs().Value(path)
	spec := *object.Spec.(*secret.Spec)
	boxed := *spec.Sealed
	boxed.Box = &seal.Box{Key: id}
	spec.Sealed, object.Spec = &boxed, &spec
	content := in.Configs.Content()
	content.Configs = content.Configs.Set(object.Key().Path(), &object)
	in.Configs = in.Configs.Next(in.Configs.Revision(), content)
	if object.Key().Path() != path || object.GroupVersionKind != schema.Secret {
		t.Fatal(object.Key().Path())
	}
	var x *index.Index
	push := w.Context()
	for i, step := range []struct {
		ring *seal.Ring
		want []string
	}{{nil, []string{}}, {&seal.Ring{}, []string{"door PTL0351 data"}}, {&other, []string{"door PTL0351 data"}}, {&ring, []string{}}, {&other, []string{"door PTL0351 data"}}} {
		now := in
		now.SealingKeys = step.ring
		push = push.Next(now)
		facts := verdict.Facts{Mesh: push}
		x = x.Next(facts)
		if diff := cmp.Diff(step.want, said(x)); diff != "" {
			t.Errorf("step %d (-want +got)\n%s", i, diff)
		}
		if diff := cmp.Diff(said((*index.Index)(nil).Next(facts)), said(x)); diff != "" {
			t.Errorf("step %d (-from nothing +by increments)\n%s", i, diff)
		}
	}
}

// TestHostsThatCertificatesAreNotFor: the certificates come from the namespaces of the proxies
// that the Gateway selects.
func TestHostsThatCertificatesAreNotFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	secrets := []string{
		sealed("door", "a.example.com, '*.b.example.com', 'spiffe://x/y'", now, now), sealed("star", "'*.example.com'", now, now),
		sealed("other/door", "z.example.com", now, now), sealed("bare", "", now, now),
	}
	of := func(namespace string) *status.Proxy {
		p := router(map[string]string{"app": "edge"})
		p.Node, p.Namespace = "router-"+namespace, namespace
		return p
	}
	for _, tc := range []struct {
		name, tls, hosts string
		routers          []*status.Proxy
		want             []string
	}{
		{name: "covered", tls: "mode: SIMPLE, credentialName: door", hosts: "a.example.com, 'default/x.b.example.com', '*.b.example.com', '*'"},
		{name: "a pattern with some name", tls: "mode: MUTUAL, credentialName: door, caCertCredentialName: x", hosts: "'*.example.com'"},
		{name: "the name with a scheme", tls: "mode: SIMPLE, credentialName: 'kubernetes://door'", hosts: "A.example.com, c.example.com", want: []string{"HOST1"}},
		{name: "a wildcard is one label", tls: "mode: SIMPLE, credentialName: door", hosts: "b.example.com, x.y.b.example.com, c.example.com", want: []string{"HOST0", "HOST1", "HOST2"}},
		{name: "either of two", tls: "mode: SIMPLE, credentialNames: [door, star]", hosts: "c.example.com, a.b.example.com, a.example.org", want: []string{"HOST2"}},
		{name: "no names at all", tls: "mode: OPTIONAL_MUTUAL, credentialName: bare, caCertCredentialName: x", hosts: "c.example.com", want: []string{"HOST0"}},
		{name: "a secret that is not there", tls: "mode: SIMPLE, credentialNames: [door, none]", hosts: "c.example.com"},
		{name: "TLS that is passed on", tls: "mode: PASSTHROUGH", hosts: "c.example.com"},
		{name: "proxies of two namespaces", tls: "mode: SIMPLE, credentialName: door", hosts: "a.example.com, z.example.com", routers: []*status.Proxy{of("default"), of("other")}, want: []string{"HOST0", "HOST1"}},
		{name: "proxies of another namespace", tls: "mode: SIMPLE, credentialName: door", hosts: "a.example.com", routers: []*status.Proxy{of("other")}, want: []string{"HOST0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			objects := append([]string{gateway("edge", "{selector: {app: edge}, servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ["+tc.hosts+"], tls: {"+tc.tls+"}}]}")}, secrets...)
			routers := tc.routers
			if routers == nil {
				routers = []*status.Proxy{router(map[string]string{"app": "edge"})}
			}
			x := (*index.Index)(nil).Next(verdict.Facts{Mesh: xdstest.NewWorld(t, objects...).Context(), Proxies: proxies(routers...)})
			var got []string
			for l := range x.Lists() {
				for _, v := range l.Verdicts {
					if v.Code == verdict.HostUncertified {
						got = append(got, strings.NewReplacer("spec.servers[0].hosts[", "HOST", "]", "").Replace(v.Field))
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s\n%q", diff, said(x))
			}
		})
	}
}

// ofClusters returns a Secret that names clusters, made at a second of the year 2030.
func ofClusters(name string, second int, label string, clusters ...string) string {
	namespace, short, _ := strings.Cut(name, "/")
	entries := ""
	for _, c := range clusters {
		entries += fmt.Sprintf("{name: %s, bytes: 1}, ", c)
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: %s, creationTimestamp: "2030-01-01T00:00:%02dZ", labels: {istio/multiCluster: %q}}, type: Opaque, sealed: {content: c, entries: [%s]}}`,
		short, namespace, second, label, entries)
}

// TestClustersOfSecrets: a Secret that names clusters has a verdict on each that is not followed as it
// says, and an incremental index equals one from nothing.
func TestClustersOfSecrets(t *testing.T) {
	t.Parallel()
	old, late := ofClusters("istio-system/b", 1, "true", "east", "west"), ofClusters("istio-system/a", 2, "true", "east", "north")
	fault := func(name, cluster, content string, away bool) (string, remote.Fault) {
		path := config.Key{Kind: schema.Secret, Namespace: "istio-system", Name: name}.Path()
		return remote.FaultKey(path, cluster), remote.Fault{Content: content, Away: away, Reason: "broken"}
	}
	with := func(key string, f remote.Fault) pmap.Map[remote.Fault] { return pmap.Map[remote.Fault]{}.Set(key, f) }
	taken := "a PTL0512 data[east] has no effect: secret/istio-system/b names the cluster east too, and is older"
	var x *index.Index
	for _, step := range []struct {
		name      string
		documents []string
		flags     pmap.Map[bool]
		faults    pmap.Map[remote.Fault]
		want      []string
	}{
		{name: "a name of its own", documents: []string{old}},
		{name: "the same name later", documents: []string{old, late}, want: []string{taken}},
		{name: "the older one is gone", documents: []string{late}},
		{name: "another label", documents: []string{ofClusters("istio-system/b", 1, "yes", "east"), late}},
		{name: "another namespace", documents: []string{ofClusters("shop/b", 1, "true", "east"), late}, want: []string{
			"b PTL0511 metadata.labels[istio/multiCluster] has no effect in the namespace shop: the Secrets of clusters are in istio-system",
		}},
		{name: "away", documents: []string{old}, faults: with(fault("b", "west", "c", true)), want: []string{
			"b PTL0514 data[west] the leading server cannot follow the cluster west, and serves what was last known of it: broken",
		}},
		{name: "unusable", documents: []string{old}, faults: with(fault("b", "west", "c", false)), want: []string{
			"b PTL0513 data[west] the leading server cannot use the kubeconfig of the cluster west: broken",
		}},
		{name: "unusable before", documents: []string{old}, faults: with(fault("b", "west", "before", false))},
		{name: "a flag", documents: []string{old, late}, flags: pmap.Map[bool]{}.Set("north", true), want: []string{
			taken, "a PTL0512 data[north] has no effect: --services-kube names the cluster north too, and counts",
		}},
	} {
		facts := verdict.Facts{Mesh: xdstest.NewWorld(t, step.documents...).Context(), FlagClusters: step.flags, ClusterFaults: step.faults}
		if step.flags.Len() > 0 {
			x = nil // flags stay while a server runs
		}
		list := func(x *index.Index) (out []string) {
			for l := range x.Lists() {
				for _, v := range l.Verdicts {
					out = append(out, l.Of.Name+" "+string(v.Code)+" "+v.Field+" "+v.Message)
				}
			}
			return out
		}
		x = x.Next(facts)
		if diff := cmp.Diff(step.want, list(x)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.name, diff)
		}
		if diff := cmp.Diff(list((*index.Index)(nil).Next(facts)), list(x)); diff != "" {
			t.Errorf("%s (-from nothing +by increments)\n%s", step.name, diff)
		}
	}
}

// TestSecretsThatWereNeverRead: as long as the secrets of a namespace are not read, a missing one is
// not called missing.
func TestSecretsThatWereNeverRead(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: door, namespace: shop}, spec: {selector: {app: edge},
		servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: SIMPLE, credentialName: door}}]}}`)
	var x *index.Index
	set := clustersecret.Set{}
	for _, step := range []struct {
		set             clustersecret.Set
		message, remedy string
	}{
		{set.WithUnread("shop", true), "it is not known whether secret door exists in the namespace shop: its secrets were not read", "have the secrets of that namespace read (the cluster has not answered yet)"},
		{set.WithUnread("shop", true).WithFault("shop", "cluster east: away"), "it is not known whether secret door exists", "(cluster east: away)"},
		{set.WithUnread("other", true), "no certificate with its key is stored as secret door", "store it"},
	} {
		w.SetClusterSecrets(step.set)
		facts := verdict.Facts{Mesh: w.Context(), FlagClusters: pmap.Map[bool]{}.Set("east", true)}
		x = x.Next(facts)
		text := ""
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				text += v.Message + ": " + v.Remedy + "\n"
			}
		}
		if !strings.Contains(text, step.message) || !strings.Contains(text, step.remedy) {
			t.Errorf("it lacks %q or %q: %s", step.message, step.remedy, text)
		}
		if unread := step.set.Unread().Value("shop"); unread == strings.Contains(text, "--secrets-kube") {
			t.Errorf("unread %v: %s", unread, text)
		}
		if diff := cmp.Diff(said((*index.Index)(nil).Next(facts)), said(x)); diff != "" {
			t.Errorf("%s (-from nothing +by increments)\n%s", step.message, diff)
		}
	}
}
