package identity_test

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

func TestParse(t *testing.T) {
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	got, err := identity.Parse(web)
	if want := (identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}); err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got.String() != web || got.URL().String() != web {
		t.Errorf("it is written as %q and %q", got, got.URL())
	}
	for text, want := range map[string]string{
		"":                                   "is not spiffe://",
		"spiffe://cluster.local":             "is not spiffe://",
		"https://cluster.local/ns/a/sa/b":    "is not spiffe://",
		web + "/more":                        "is not spiffe://",
		"spiffe://cluster.local/sa/a/ns/b":   "is not spiffe://",
		"spiffe://Cluster.local/ns/a/sa/b":   "trust domain",
		"spiffe:///ns/a/sa/b":                "trust domain",
		"spiffe://cluster.local/ns//sa/b":    "namespace",
		"spiffe://cluster.local/ns/../sa/b":  "namespace",
		"spiffe://cluster.local/ns/a/sa/b c": "service account",
		"spiffe://cluster.local/ns/a/sa/.":   "service account",
		"spiffe://cluster.local/ns/a/sa/%41": "service account",
	} {
		if got, err := identity.Parse(text); err == nil || !strings.Contains(err.Error(), want) || got != (identity.Identity{}) {
			t.Errorf("%q: got %+v, %v; want an error about %q", text, got, err, want)
		}
	}
}

func TestOfCertificate(t *testing.T) {
	web, err := identity.New("cluster.local", "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := identity.OfCertificate(&x509.Certificate{URIs: []*url.URL{web.URL()}}); err != nil || got != web {
		t.Errorf("got %v, %v", got, err)
	}
	for _, uris := range [][]*url.URL{nil, {web.URL(), web.URL()}, {{Scheme: "spiffe", Host: "cluster.local"}}} {
		if got, err := identity.OfCertificate(&x509.Certificate{URIs: uris}); err == nil {
			t.Errorf("%v: got %v", uris, got)
		}
	}
}
