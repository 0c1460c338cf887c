package identity_test

import (
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
)

// FuzzOfCertificate: whatever a certificate contains, its identity is exactly its one URI.
func FuzzOfCertificate(f *testing.F) {
	authority := securetest.New(f, "root")
	for _, uri := range []string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/web/../db", "spiffe://cluster.local/ns/shop%2Fbank/sa/web", "https://example.com/", ""} {
		f.Add(authority.Issue(f, securetest.Leaf{Identity: uri, Names: []string{"web.example"}, Until: time.Now().Add(time.Hour)}).Parsed.Raw, uri)
	}
	f.Fuzz(func(t *testing.T, der []byte, uri string) {
		var all []*x509.Certificate
		if c, err := x509.ParseCertificate(der); err == nil {
			all = append(all, c)
		}
		if u, err := url.Parse(uri); err == nil {
			all = append(all, &x509.Certificate{URIs: []*url.URL{u}})
		}
		for _, c := range all {
			who, err := identity.OfCertificate(c)
			if err != nil {
				continue
			}
			if len(c.URIs) != 1 || c.URIs[0].String() != who.String() {
				t.Errorf("%v is said to be %s", c.URIs, who)
			}
			if again, err := identity.Parse(who.String()); err != nil || again != who {
				t.Errorf("%s is read as %v, %v", who, again, err)
			}
		}
	})
}
