package peercert

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// chain verifies the certificate in a directory against its authority.
func chain(t *testing.T, d Dir, host string) *x509.Certificate {
	t.Helper()
	config, err := d.files().Config()
	if err != nil {
		t.Fatal(err)
	}
	leaf := config.Certificates[0].Leaf
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: config.RootCAs, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
	}
	return leaf
}

func TestAMemberKeepsItsCertificate(t *testing.T) {
	d := In(filepath.Join(t.TempDir(), "data"))
	k, err := d.Open("10.0.0.1", "cp-1.example")
	if err != nil {
		t.Fatal(err)
	}
	first := chain(t, d, "10.0.0.1")
	for _, file := range []string{caFile, caKeyFile, certFile, keyFile} {
		if info, err := os.Stat(d.file(file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	again, err := d.Open("10.0.0.1", "cp-1.example")
	if err != nil || !chain(t, d, "cp-1.example").Equal(first) || !again.authority.Equal(k.authority) {
		t.Errorf("opened again it has others: %v", err)
	}
	if err := k.renew(time.Now().Add(life * 3 / 4)); err != nil || chain(t, d, "10.0.0.1").Equal(first) {
		t.Errorf("it is not renewed: %v", err)
	}
	// The member moves to another host, also after years away.
	if _, err := d.Open("10.0.0.7"); err != nil {
		t.Fatal(err)
	}
	chain(t, d, "10.0.0.7")
	if err := k.Degraded(); err != nil {
		t.Error(err)
	}
}

func TestAMemberJoins(t *testing.T) {
	one, two := In(filepath.Join(t.TempDir(), "one")), In(filepath.Join(t.TempDir(), "two"))
	k, err := one.Open("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	key, err := two.Key()
	if err != nil {
		t.Fatal(err)
	}
	if same, err := two.Key(); err != nil || !same.Equal(key) {
		t.Errorf("the key is another: %v", err)
	}
	if place, err := two.Place(); place != nil || err != nil {
		t.Errorf("it has joined: %v, %v", place, err)
	}
	signed, err := k.Sign(key.Public(), "10.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	ca, caKey, err := k.Authority()
	if err != nil {
		t.Fatal(err)
	}
	want := Place{Name: "cp-2", PeerURL: "https://10.0.0.2:2380", ClientURL: "https://10.0.0.2:2379", Join: []string{"https://10.0.0.1:2379"}}
	if err := two.Join(want, signed, ca, caKey); err != nil {
		t.Fatal(err)
	}
	if place, err := two.Place(); err != nil || place.Name != want.Name || place.Join[0] != want.Join[0] {
		t.Errorf("its place is %+v, %v", place, err)
	}
	given := chain(t, two, "10.0.0.2")
	kept, err := two.Open("10.0.0.2")
	if err != nil || !chain(t, two, "10.0.0.2").Equal(given) || !kept.authority.Equal(k.authority) {
		t.Errorf("it does not keep what it was given: %v", err)
	}
	// It admits members as the first does.
	three, err := kept.Sign(key.Public(), "10.0.0.3")
	if err != nil || len(three) == 0 {
		t.Error(err)
	}
}
