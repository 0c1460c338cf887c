package integration

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
)

// TestAnExpiredCertificateIsRenewed: a machine whose certificate has expired gets the next one
// with it, and no token. Nothing else accepts the expired certificate. A revoked identity, and
// a certificate that expired too long ago, are refused.
func TestAnExpiredCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	secureXDS := announcedSecure.FindStringSubmatch(s.process.output())[1]
	roots := write(t, "roots.pem", s.must("", "ca", "root"))
	dir := filepath.Join(t.TempDir(), "web")
	machine := func(args ...string) outcome {
		return command(t, "", append([]string{"certificate"}, append(args, "--ttl", "5s", "--out", dir, "--server", "https://"+s.api, "--ca", roots)...)...)
	}
	expired := func() enroll.Held {
		t.Helper()
		held, err := enroll.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the certificate expires", func() error {
			if !time.Now().After(held.Pair.Leaf.NotAfter) {
				return errors.New("it is valid")
			}
			return nil
		})
		return held
	}
	token := write(t, "web.token", s.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	if o := machine("request", "--token-file", token); o.code != 0 {
		t.Fatalf("the first certificate: %+v", o)
	}

	held := expired()
	plain, renewal := []string{"http/1.1"}, []string{certificate.RenewalProtocol, "http/1.1"}
	for what, c := range map[string]struct {
		address    string
		protocols  []string
		path, want string
	}{
		"the config API":                        {s.api, plain, "/version", "expired certificate"},
		"a request without the protocol":        {s.api, plain, certificate.Path, "expired certificate"},
		"xDS":                                   {secureXDS, []string{"h2"}, "/", "expired certificate"},
		"xDS, by the protocol of renewals":      {secureXDS, []string{certificate.RenewalProtocol, "h2"}, "/", "expired certificate"},
		"the API by the same":                   {s.api, renewal, "/apis/networking.istio.io/v1/virtualservices", "421"},
		"a path that leads to the renewal":      {s.api, renewal, "/x/.." + certificate.Path, "421"},
		"the renewal without a request to sign": {s.api, renewal, certificate.Path, "405"},
	} {
		if got := answerTo(t, held.Pair, c.address, c.protocols, c.path); !strings.Contains(got, c.want) {
			t.Errorf("%s, with an expired certificate: %s; want %s", what, got, c.want)
		}
	}
	if o := machine("renew"); o.code != 0 || !strings.Contains(o.stdout, "has the certificate of "+webIdentity) {
		t.Fatalf("it is not renewed: %+v", o)
	}
	if history := s.must("", "audit"); !strings.Contains(history, "renewed with an expired certificate") {
		t.Errorf("the history does not say so:\n%s", history)
	}

	held = expired()
	watch := start(t, "watch", binary, "certificate", "request", "--watch", "--out", dir, "--server", "https://"+s.api, "--ca", roots, "--ttl", "5s")
	eventually(t, "a machine that slept renews by itself", func() error {
		now, err := enroll.Read(dir)
		if err == nil && now.Pair.Leaf.Equal(held.Pair.Leaf) {
			err = fmt.Errorf("it has the same certificate\n%s", watch.output())
		}
		return err
	})
	watch.kill()

	held = expired()
	s.kill()
	s.o.args = append(s.o.args, "--renew-expired", "1ms")
	s.start()
	if o := machine("renew"); o.code == 0 || !strings.Contains(o.stderr, "longer ago than the 1ms") || !strings.Contains(o.stderr, "portolan token create") {
		t.Errorf("a certificate that expired too long ago is renewed: %+v", o)
	}
	s.kill()
	s.o.args = s.o.args[:len(s.o.args)-2]
	s.start()
	s.apply(`
apiVersion: portolan.io/v1
kind: RevokedIdentity
metadata: {name: web, namespace: shop}
spec: {serviceAccount: web, reason: the machine was stolen}
`)
	if o := machine("renew"); o.code == 0 || !strings.Contains(o.stderr, "is revoked") {
		t.Errorf("a revoked identity is renewed: %+v", o)
	}
}

// answerTo returns the status line of the answer to a GET over TLS with a client certificate, or
// the error of the connection.
func answerTo(t *testing.T, own tls.Certificate, address string, protocols []string, path string) string {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, config)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+address+"\r\n\r\n"); err != nil {
		return err.Error()
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	_ = response.Body.Close()
	return response.Status
}
