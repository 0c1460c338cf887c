package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/names"
)

// TestEnvoySecretsOfADump: proxy config secret shows the certificates that an Envoy acknowledged,
// and of files only their names. With --dump it shows what the Envoy had then, also of files. Each
// has the listeners that name it.
func TestEnvoySecretsOfADump(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, inner := startServer(t, serverOptions{}), freePort(t), freePort(t)
		of := securetest.New(t, "authority")
		own := of.Issue(t, securetest.Leaf{Identity: "spiffe://cluster.local/ns/shop/sa/edge"})
		files := of.Write(t, t.TempDir(), own)
		before, after := secrettest.New(t, time.Hour, "door.shop.test"), secrettest.New(t, time.Hour, "door.shop.test")
		serial := func(p secrettest.Pair) string { return p.Parsed.SerialNumber.Text(16) }
		s.apply(tlsSecret("door", before), tlsGateway("doors", httpsServer(port, "door", "mode: SIMPLE, credentialName: door"), httpsServer(inner, "hatch", "mode: ISTIO_MUTUAL")),
			tlsAnswer("doors", "door"), tlsAnswer("doors", "hatch"))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v, certificate: &certificateFiles{files.Cert, files.Key, files.CA}})
		newTLSClient(port, "door.shop.test", before, after).awaitCertificate(t, before)
		edge.awaitWarm()
		text, err := edge.dumped()
		if err != nil {
			t.Fatal(err)
		}
		dump := string(text)
		s.awaitSynced(s.apply(tlsSecret("door", after)), "edge")

		stored, listener := names.Credential("door"), fmt.Sprintf("listener 127.0.0.1_%d", port)
		file, mutual := "a file", fmt.Sprintf("listener 127.0.0.1_%d", inner)
		for name, c := range map[string]struct {
			stdin string
			args  []string
			want  map[string]string // kind, serials and names of each secret
		}{
			"acknowledged": {"", nil, map[string]string{
				stored:                    "certificate " + serial(after) + " CN=door.shop.test door.shop.test",
				names.WorkloadCertificate: "certificate " + file, names.WorkloadRoots: "authorities " + file}},
			"of the dump": {dump, []string{"--dump", "-"}, map[string]string{
				stored:                    "certificate " + serial(before) + " CN=door.shop.test door.shop.test",
				names.WorkloadCertificate: "certificate " + serial(own) + " CN=authority spiffe://cluster.local/ns/shop/sa/edge",
				names.WorkloadRoots:       "authorities " + serial(of.Pair) + " CN=authority authority"}},
		} {
			out := s.must(c.stdin, append([]string{"proxy", "config", "secrets", "edge", "-o", "json"}, c.args...)...)
			var config admin.ProxyConfig
			if err := json.Unmarshal([]byte(out), &config); err != nil || len(config.Types) != 1 {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
			for _, r := range config.Types[0].Resources {
				got := r.Secret.Kind
				if strings.HasPrefix(r.Secret.File, files.Dir) {
					got += " " + file
				}
				for _, one := range r.Secret.Certificates {
					got += " " + one.Serial + " " + one.Issuer + " " + strings.Join(one.Names, ",")
					if one.NotAfter.Before(time.Now()) || one.NotBefore.After(time.Now()) {
						t.Errorf("%s: %s is valid from %s to %s", name, r.Name, one.NotBefore, one.NotAfter)
					}
				}
				needs := mutual
				if r.Name == stored {
					needs = listener
				}
				if got != c.want[r.Name] || !slices.Contains(r.Secret.NeededBy, needs) {
					t.Errorf("%s: %s: %s, needed by %q, want %s, %s", name, r.Name, got, r.Secret.NeededBy, c.want[r.Name], needs)
				}
				delete(c.want, r.Name)
			}
			if len(c.want) > 0 {
				t.Errorf("%s: no %v in %s", name, c.want, out)
			}
			keys := scanner{}
			keys.add(t, "the key of before", before)
			keys.add(t, "the key of after", after)
			keys.add(t, "the key of the file", own)
			for _, what := range keys.scan([]byte(out + dump)) {
				t.Errorf("%s: the output or the dump has %s", name, what)
			}
		}
		if out := s.must("", "proxy", "config", "secrets", "edge"); !strings.Contains(out, "in "+files.Cert+" of its machine") || !strings.Contains(out, listener) {
			t.Errorf("the table:\n%s", out)
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}
