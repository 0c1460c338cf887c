package schema_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-multierror"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestPilotServesTheNamesAndVersionsOfIstio(t *testing.T) {
	t.Parallel()
	networking, security := "networking.istio.io", "security.istio.io"
	var got [][]string
	for _, k := range schema.Pilot().All() {
		got = append(got, []string{k.Group, k.Kind, k.Plural, k.Singular, strings.Join(k.ShortNames, ","), strings.Join(k.Versions, ",")})
	}
	want := [][]string{
		{"", "Secret", "secrets", "secret", "", "v1"},
		{networking, "DestinationRule", "destinationrules", "destinationrule", "dr", "v1,v1beta1,v1alpha3"},
		{networking, "EnvoyFilter", "envoyfilters", "envoyfilter", "ef", "v1alpha3"},
		{networking, "Gateway", "gateways", "gateway", "gw", "v1,v1beta1,v1alpha3"},
		{networking, "ProxyConfig", "proxyconfigs", "proxyconfig", "", "v1beta1"},
		{networking, "ServiceEntry", "serviceentries", "serviceentry", "se", "v1,v1beta1,v1alpha3"},
		{networking, "Sidecar", "sidecars", "sidecar", "sc", "v1,v1beta1,v1alpha3"},
		{networking, "VirtualService", "virtualservices", "virtualservice", "vs", "v1,v1beta1,v1alpha3"},
		{networking, "WorkloadEntry", "workloadentries", "workloadentry", "we", "v1,v1beta1,v1alpha3"},
		{networking, "WorkloadGroup", "workloadgroups", "workloadgroup", "wg", "v1,v1beta1,v1alpha3"},
		{security, "AuthorizationPolicy", "authorizationpolicies", "authorizationpolicy", "ap", "v1,v1beta1"},
		{security, "PeerAuthentication", "peerauthentications", "peerauthentication", "pa", "v1,v1beta1"},
		{security, "RequestAuthentication", "requestauthentications", "requestauthentication", "ra", "v1,v1beta1"},
		{"telemetry.istio.io", "Telemetry", "telemetries", "telemetry", "", "v1,v1alpha1"},
		{"extensions.istio.io", "WasmPlugin", "wasmplugins", "wasmplugin", "", "v1alpha1"},
		{"networking.k8s.io", "Ingress", "ingresses", "ingress", "ing", "v1"},
		{"networking.k8s.io", "IngressClass", "ingressclasses", "ingressclass", "", "v1"},
		{"portolan.io", "JoinToken", "jointokens", "jointoken", "", "v1"},
		{"portolan.io", "TokenIssuer", "tokenissuers", "tokenissuer", "", "v1"},
		{"portolan.io", "RevokedIdentity", "revokedidentities", "revokedidentity", "ri", "v1"},
		{"portolan.io", "PeerPhase", "peerphases", "peerphase", "", "v1"},
		{"portolan.io", "KeySet", "keysets", "keyset", "", "v1"},
		{"portolan.io", "HostGrant", "hostgrants", "hostgrant", "", "v1"},
		{"portolan.io", "MeshConfig", "meshconfigs", "meshconfig", "", "v1"},
		{"portolan.io", "Role", "roles", "role", "", "v1"},
		{"portolan.io", "RoleBinding", "rolebindings", "rolebinding", "", "v1"},
		{"portolan.io", "User", "users", "user", "", "v1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("kinds (-want +got):\n%s", d)
	}
}

func TestEveryNameOfAKindFindsIt(t *testing.T) {
	t.Parallel()
	set := schema.Pilot()
	for _, k := range set.All() {
		for _, name := range append([]string{k.Plural, k.Singular, k.Kind, strings.ToUpper(k.Plural)}, k.ShortNames...) {
			if set.Named(name) != k {
				t.Errorf("Named(%q) is not %s", name, k.Kind)
			}
		}
		if set.Plural(k.Group, k.Plural) != k {
			t.Errorf("Plural(%q) is not %s", k.Plural, k.Kind)
		}
		for _, version := range k.Versions {
			got, err := set.Type(k.Group+"/"+version, k.Kind)
			if err != nil || got.GroupVersionKind != k.GroupVersionKind {
				t.Errorf("Type(%s, %s) = %v, %v", version, k.Kind, got.GroupVersionKind, err)
			}
		}
	}
}

func TestResolveSaysWhatIsServed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ apiVersion, kind, want string }{
		{"networking.istio.io/v2", "Gateway", "use networking.istio.io/v1 or networking.istio.io/v1beta1"},
		{"networking.istio.io/v1", "EnvoyFilter", "use networking.istio.io/v1alpha3"},
		{"v1", "Service", `unknown kind "Service" of apiVersion "v1": see portolan api-resources for those served`},
		{"gateway.networking.k8s.io/v1", "Gateway", `unknown kind "Gateway" of apiVersion "gateway.networking.k8s.io/v1": see portolan api-resources for those served, or did you mean Gateway of apiVersion networking.istio.io/v1?`},
		{"networking.istio.io/v1", "VirtualSevice", `or did you mean VirtualService of apiVersion networking.istio.io/v1?`},
		{"networking.istio.io/v1", "sidecar", `or did you mean Sidecar of apiVersion networking.istio.io/v1?`},
	} {
		if _, err := schema.Pilot().Type(test.apiVersion, test.kind); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Type(%s, %s): %v, want %q in it", test.apiVersion, test.kind, err, test.want)
		}
	}
}

// bare is a kind without rules of its own.
func bare(clusterScoped bool) *schema.Schema {
	return &schema.Schema{
		GroupVersionKind: schema.Gateway, ClusterScoped: clusterScoped, Codec: config.Protobuf[networking.Gateway](),
	}
}

func TestMetaIsChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	object := func(change func(*config.Config)) *config.Config {
		c := &config.Config{
			Meta: config.Meta{GroupVersionKind: schema.Gateway, Name: "edge", Namespace: "shop"},
			Spec: &networking.Gateway{},
		}
		change(c)
		return c
	}
	for _, test := range []struct {
		name   string
		object *config.Config
		want   []string // fields at fault
	}{
		{"sound", object(func(c *config.Config) {
			c.Labels = map[string]string{"app.kubernetes.io/name": "edge", "empty": ""}
			c.Annotations = map[string]string{"example.com/Note": "anything at all\n"}
		}), nil},
		{"nothing", object(func(c *config.Config) { c.Name, c.Namespace = "", "" }), []string{"metadata.name", "metadata.namespace"}},
		{"dotted name", object(func(c *config.Config) { c.Name = "a.b-c.d" }), nil},
		{"capital name", object(func(c *config.Config) { c.Name = "Edge" }), []string{"metadata.name"}},
		{"slash in name", object(func(c *config.Config) { c.Name = "../etc" }), []string{"metadata.name"}},
		{"dotted namespace", object(func(c *config.Config) { c.Namespace = "a.b" }), []string{"metadata.namespace"}},
		{"long namespace", object(func(c *config.Config) { c.Namespace = long }), []string{"metadata.namespace"}},
		{"labels", object(func(c *config.Config) { c.Labels = map[string]string{"a b": "x", "ok": "not ok", "v": long} }),
			[]string{"metadata.labels[a b]", "metadata.labels[ok]", "metadata.labels[v]"}},
		{"annotation key", object(func(c *config.Config) { c.Annotations = map[string]string{"a/b/c": ""} }),
			[]string{"metadata.annotations[a/b/c]"}},
		{"too much", object(func(c *config.Config) { c.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)} }),
			[]string{"metadata.annotations"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			_, err := bare(false).Validate(test.object)
			for _, f := range faults(t, err) {
				got = append(got, f.Field)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("fields (-want +got):\n%s", d)
			}
		})
	}
	if _, err := bare(true).Validate(object(func(*config.Config) {})); err == nil || !strings.Contains(err.Error(), "has no namespace") {
		t.Errorf("a namespace on a cluster-scoped kind: %v", err)
	}
}

func TestASpecOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	gateway := schema.Pilot().Kind(schema.Gateway)
	for _, c := range []*config.Config{
		{Meta: config.Meta{Name: "a", Namespace: "b"}},
		{Meta: config.Meta{Name: "a", Namespace: "b"}, Spec: schema.Pilot().Kind(schema.Sidecar).Codec.New()},
	} {
		if _, err := gateway.Validate(c); err == nil || !strings.Contains(err.Error(), "spec: is missing") {
			t.Errorf("spec %T: %v", c.Spec, err)
		}
	}
}

// faults returns the field errors of a validation.
func faults(t *testing.T, err error) []*schema.FieldError {
	t.Helper()
	if err == nil {
		return nil
	}
	var all *multierror.Error
	if !errors.As(err, &all) {
		t.Fatalf("%T is no *multierror.Error: %v", err, err)
	}
	var out []*schema.FieldError
	for _, e := range all.Errors {
		var f *schema.FieldError
		if !errors.As(e, &f) {
			t.Fatalf("%T is no *FieldError: %v", e, e)
		}
		out = append(out, f)
	}
	return out
}

// validate reads one object and returns its faults and warnings in words.
func validate(t *testing.T, document string) (refused, warned []string) {
	t.Helper()
	documents, err := config.Decode("test.yaml", []byte(document), schema.All().Type)
	if err != nil || len(documents) != 1 {
		t.Fatalf("decode: %d documents, %v\n%s", len(documents), err, document)
	}
	c := documents[0].Config
	warnings, err := schema.All().Kind(c.GroupVersionKind).Validate(c)
	for _, f := range faults(t, err) {
		refused = append(refused, f.Error())
	}
	return refused, texts(warnings)
}

func texts(warnings []schema.Warning) []string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.Text())
	}
	return out
}

// spec makes an object of a kind with the specification given in YAML.
func spec(kind config.GroupVersionKind, text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	indent := len(lines[0]) - len(strings.TrimLeft(lines[0], "\t"))
	for i, line := range lines {
		line = line[min(indent, len(line)):]
		lines[i] = "  " + strings.ReplaceAll(line, "\t", "  ")
	}
	namespace := ", namespace: shop"
	if schema.Pilot().Kind(kind).ClusterScoped {
		namespace = ""
	}
	head := "apiVersion: " + kind.APIVersion() + "\nkind: " + kind.Kind + "\nmetadata: {name: test" + namespace + "}\nspec:\n"
	return head + strings.Join(lines, "\n") + "\n"
}

// TestServedFieldsRaiseNoWarning checks the tables of served fields with objects that use
// all of them.
func TestServedFieldsRaiseNoWarning(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/served/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := config.Decode(file, data, schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			warnings, err := schema.Pilot().Kind(d.Config.GroupVersionKind).Validate(d.Config)
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s: %s: %v %q", file, d.Config.Key(), err, warnings)
			}
		}
	}
}

func FuzzValidate(f *testing.F) {
	files, err := filepath.Glob("testdata/served/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, _ := config.Decode("fuzz.yaml", data, schema.Pilot().Type)
		for _, d := range documents {
			k := schema.Pilot().Kind(d.Config.GroupVersionKind)
			warnings, err := k.Validate(d.Config)
			again, errAgain := k.Validate(d.Config)
			if !slices.Equal(warnings, again) || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
				t.Errorf("two validations differ:\n%q %v\n%q %v", warnings, err, again, errAgain)
			}
		}
	})
}
