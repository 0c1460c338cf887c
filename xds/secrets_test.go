package xds_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// needy makes clusters of hosts below secrets.shop.example need a secret and its
// authorities. The rest of the host name names the secret.
type needy struct{}

func (needy) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

func (needy) Apply(_ *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	ref, ok := names.ParseCluster(name)
	if of, below := strings.CutSuffix(ref.Host, ".secrets.shop.example"); ok && below {
		for _, secret := range []string{names.Credential(of), names.CredentialRoots(of)} {
			needs = append(needs, resource.Need{TypeURL: resource.SecretType, Name: secret, Kind: resource.Once})
		}
	}
	return message, needs, nil
}

func needyTypes() []generate.ResourceType {
	types := catalogue.Types()
	types[0] = types[0].Patched(needy{})
	return types
}

func pairSecret(tb testing.TB, name string) string {
	pair := secrettest.New(tb, time.Hour, "web.example")
	return xdstest.Secret(name, map[string][]byte{secret.TLSCert: pair.Cert, secret.TLSKey: pair.Key, secret.TLSAuthority: pair.Cert})
}

// versionOf returns the bytes of a secret that a client holds, empty for none.
func versionOf(c *xdstest.Client, name string) string {
	return string(c.Held(resource.SecretType)[name].Body.GetValue())
}

func awaitSecret(c *xdstest.Client, what, name string, ok func(version string) bool) {
	c.Await(what, func(held func(string) map[string]xdstest.Held) bool {
		return ok(string(held(resource.SecretType)[name].Body.GetValue()))
	})
}

func present(version string) bool { return version != "" }

// TestSecrets: a proxy gets the secrets that its clusters need. A secret that is replaced
// is sent alone.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, variant := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(variant.String(), func(t *testing.T) {
			t.Parallel()
			s := xdstest.NewServer(t, needyTypes())
			s.Apply(service("a.secrets", 80, "10.1.0.1"), pairSecret(t, "shop/a"), pairSecret(t, "shop/b"))
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: variant})
			c.Subscribe(xdstest.ClusterType)
			c.Subscribe(resource.SecretType, "kubernetes://a", "kubernetes://a-cacert", "kubernetes://b")
			awaitSecret(c, "the secret of a needed name", "kubernetes://a", present)
			awaitSecret(c, "its authorities", "kubernetes://a-cacert", present)
			var sent tlsv3.Secret
			if err := proto.Unmarshal(c.Held(resource.SecretType)["kubernetes://a"].Body.GetValue(), &sent); err != nil {
				t.Fatal(err)
			}
			if sent.GetName() != "kubernetes://a" || len(sent.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) == 0 {
				t.Errorf("the secret has the name %s", sent.GetName())
			}
			if versionOf(c, "kubernetes://b") != "" {
				t.Error("a secret that nothing needs was sent")
			}
			clusters, before := len(c.Answers(xdstest.ClusterType)), versionOf(c, "kubernetes://a")
			s.Apply(pairSecret(t, "shop/a"))
			awaitSecret(c, "the new secret", "kubernetes://a", func(v string) bool { return v != "" && v != before })
			if now := len(c.Answers(xdstest.ClusterType)); now != clusters {
				t.Errorf("%d answers of clusters came with a replaced secret", now-clusters)
			}

			s.Apply(service("b.secrets", 80, "10.1.0.1"))
			awaitSecret(c, "a secret that is needed now", "kubernetes://b", present)
			before = versionOf(c, "kubernetes://a")
			s.Delete(pairSecret(t, "shop/a"))
			if variant == protocol.Delta { // in state of the world a client keeps it
				awaitSecret(c, "that the deleted secret goes", "kubernetes://a", func(v string) bool { return v == "" })
			}
			s.Apply(pairSecret(t, "shop/a"))
			awaitSecret(c, "that it comes back", "kubernetes://a", func(v string) bool { return v != "" && v != before })
		})
	}
}

// TestSecretsAreForTheirOwnersOnly: a proxy that may not have a secret gets the answer for
// a name that does not exist.
func TestSecretsAreForTheirOwnersOnly(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		node     string // its address; 10.0.0.9 is of another namespace
		identity string
		typeOnly bool
		names    []string
		given    bool
		refused  bool
	}{
		"its owner":                                   {node: "10.0.0.1", names: []string{"kubernetes://a"}, given: true},
		"its owner by the service of the type":        {node: "10.0.0.1", typeOnly: true, names: []string{"kubernetes://a"}, given: true},
		"its owner with an identity":                  {node: "10.0.0.1", identity: "spiffe://cluster.local/ns/shop/sa/web", names: []string{"kubernetes://a"}, given: true},
		"a proxy with the identity of another":        {node: "10.0.0.1", identity: "spiffe://cluster.local/ns/other/sa/web", names: []string{"kubernetes://a"}, refused: true},
		"a proxy that nothing makes need it":          {node: "10.0.0.1", names: []string{"kubernetes://b"}},
		"the same by the service of the type":         {node: "10.0.0.1", typeOnly: true, names: []string{"kubernetes://b"}},
		"a proxy of another namespace":                {node: "10.0.0.9", names: []string{"kubernetes://a"}},
		"a proxy that names the namespace":            {node: "10.0.0.9", names: []string{"kubernetes://shop/a", "shop/a", "a", "kubernetes:///a", "kubernetes-gateway://shop/a"}},
		"a proxy that asks for all":                   {node: "10.0.0.1", names: nil},
		"a proxy that asks for all by the wild card":  {node: "10.0.0.1", names: []string{"*"}},
		"a proxy without certificate for the default": {node: "10.0.0.1", names: []string{"default", "ROOTCA"}},
	} {
		for _, variant := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
			t.Run(what+" "+variant.String(), func(t *testing.T) {
				t.Parallel()
				s := xdstest.NewServer(t, needyTypes(), func(o *xds.Options) {
					o.Peer = func(context.Context) (admission.Peer, error) {
						if c.identity == "" {
							return admission.Peer{}, nil
						}
						who, err := identity.Parse(c.identity)
						return admission.Peer{Identity: who}, err
					}
				})
				s.Apply(service("a.secrets", 80, "10.1.0.1"), pairSecret(t, "shop/a"), pairSecret(t, "shop/b"))
				n := node(c.node)
				if c.node == "10.0.0.9" {
					n = xdstest.NewNode("sidecar", c.node, "stranger", "other", nil)
				}
				client := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: n, Variant: variant, Secrets: c.typeOnly})
				client.Subscribe(resource.SecretType, c.names...)
				if c.refused {
					if err := client.AwaitEnd(); status.Code(err) != codes.PermissionDenied {
						t.Errorf("the stream ended with %v", err)
					}
					return
				}
				if c.given {
					awaitSecret(client, "the secret", c.names[0], present)
					return
				}
				// What comes after the answer to the request shows that the answer had nothing.
				if !c.typeOnly {
					client.Subscribe(xdstest.ClusterType)
					client.Await("clusters", func(held func(string) map[string]xdstest.Held) bool { return len(held(xdstest.ClusterType)) > 0 })
				}
				if len(c.names) > 0 && c.names[0] != "*" && variant == protocol.Delta {
					client.AwaitAnswer(resource.SecretType, 0)
				}
				if held := client.Held(resource.SecretType); len(held) > 0 {
					t.Errorf("%d secrets were given away", len(held))
				}
			})
		}
	}
}
