package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// lineage is a certificate as certbot keeps it: archive has the files of all versions, live has
// links to the newest ones.
type lineage struct {
	t             testing.TB
	live, archive string
	version       int
}

func newLineage(t testing.TB, name string) *lineage {
	t.Helper()
	etc := t.TempDir()
	l := &lineage{t: t, live: filepath.Join(etc, "live", name), archive: filepath.Join(etc, "archive", name)}
	for _, dir := range []string{l.live, l.archive} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// renew does what certbot does: it writes the files of a new version, and then replaces each
// link.
func (l *lineage) renew(pair secrettest.Pair) {
	l.t.Helper()
	l.version++
	kinds := []struct {
		name    string
		content []byte
	}{{"cert", pair.Cert}, {"privkey", pair.Key}, {"chain", pair.Cert}, {"fullchain", pair.Cert}}
	for _, k := range kinds {
		if err := os.WriteFile(filepath.Join(l.archive, fmt.Sprintf("%s%d.pem", k.name, l.version)), k.content, 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, k := range kinds {
		link := filepath.Join(l.live, k.name+".pem")
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			l.t.Fatal(err)
		}
		target := filepath.Join("..", "..", "archive", filepath.Base(l.archive), fmt.Sprintf("%s%d.pem", k.name, l.version))
		if err := os.Symlink(target, link); err != nil {
			l.t.Fatal(err)
		}
	}
}

// scriptsOf returns the scripts in a document, in order.
func scriptsOf(t testing.TB, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	inside := false
	for line := range strings.Lines(string(text)) {
		code, indented := strings.CutPrefix(line, "    ")
		if inside = indented && (inside || code == "#!/bin/sh\n"); !inside {
			continue
		}
		if code == "#!/bin/sh\n" {
			out = append(out, "")
		}
		out[len(out)-1] += code
	}
	return out
}

// TestEnvoyFollowsCertbot: the hooks of the page on HTTPS bring renewed certificates to
// gateways, to one as a secret and to one as files, while requests run.
func TestEnvoyFollowsCertbot(t *testing.T) {
	needTools(t, "sh", "install", "mv")
	scripts := scriptsOf(t, "../docs/tasks/serve-https.md")
	if len(scripts) != 2 {
		t.Fatalf("the page has %d scripts", len(scripts))
	}
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, of := startServer(t, serverOptions{}), freePort(t), newAuthority(t, "authority")
		etc, bin := t.TempDir(), t.TempDir()
		files := fmt.Sprintf("mode: SIMPLE, serverCertificate: %[1]s/fullchain.pem, privateKey: %[1]s/privkey.pem", etc)
		hooks := map[string]string{}
		for name, script := range map[string]string{
			"stored": scripts[0],
			"files":  strings.NewReplacer("/etc/edge/", etc+"/", " -o envoy", "").Replace(scripts[1]), // there is no such user here
		} {
			hooks[name] = filepath.Join(bin, name)
			if err := os.WriteFile(hooks[name], []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(binary, filepath.Join(bin, "portolan")); err != nil {
			t.Fatal(err)
		}
		lineages := map[string]*lineage{}
		renew := func(name string) secrettest.Pair {
			t.Helper()
			pair := of.issue(60*24*time.Hour, name+".shop.test")
			lineages[name].renew(pair)
			hook := exec.CommandContext(t.Context(), hooks[name])
			hook.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PORTOLAN_SERVER=http://"+s.api, "RENEWED_LINEAGE="+lineages[name].live)
			if out, err := hook.CombinedOutput(); err != nil || strings.Contains(string(out), "Warning") {
				t.Fatalf("the hook %s: %v: %s", name, err, out)
			}
			return pair
		}
		first := map[string]secrettest.Pair{}
		for _, name := range []string{"stored", "files"} {
			lineages[name] = newLineage(t, name+".shop.test")
			first[name] = renew(name)
		}
		s.apply(
			tlsGateway("www", httpsServer(port, "stored", "mode: SIMPLE, credentialName: shop-cert"), httpsServer(port, "files", files)),
			tlsAnswer("www", "stored"), tlsAnswer("www", "files"))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		for _, name := range []string{"stored", "files"} {
			client := newTLSClient(port, name+".shop.test", of.pair)
			client.awaitCertificate(t, first[name])
			load := client.load(t, "requests to "+name, false)
			for range 2 {
				client.awaitCertificate(t, renew(name))
				load.await(20)
			}
			load.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// TestWarningsOfASecret: a write of a secret warns of what will be odd about it and its users,
// and of nothing else. A dry run does the same.
func TestWarningsOfASecret(t *testing.T) {
	const missing, soon, other, year = "PTL0311", "PTL0352", "PTL0353", 365 * 24 * time.Hour
	s, of := startServer(t, serverOptions{}), &authority{t, secrettest.New(t, year, "authority")}
	if out := s.try(tlsGateway("door", httpsServer(freePort(t), "door", "mode: MUTUAL, credentialName: door")), "apply", "-f", "-"); !strings.Contains(out.stderr, missing) {
		t.Errorf("without the secret: %s", out.stderr)
	}
	authority := map[string][]byte{"ca.crt": of.pair.Cert}
	for _, c := range []struct {
		name     string
		document string
		want     string // the only code in the warnings
	}{
		{"the first", keyPair("door", of.issue(year, "door.shop.test"), authority), ""},
		{"another", keyPair("door", of.issue(year, "door.shop.test"), authority), ""},
		{"one that ends soon", keyPair("door", of.issue(time.Hour, "door.shop.test"), authority), soon},
		{"one for another host", keyPair("door", of.issue(year, "window.shop.test"), authority), other},
		{"one without the authority", keyPair("door", of.issue(year, "door.shop.test"), nil), missing},
		{"the first again", keyPair("door", of.issue(year, "door.shop.test"), authority), ""},
	} {
		for _, args := range [][]string{{"apply", "-f", "-", "--dry-run=server"}, {"apply", "-f", "-"}} {
			out := s.try(c.document, args...)
			for _, code := range []string{missing, soon, other} {
				if told := strings.Contains(out.stderr, code); out.code != 0 || told != (code == c.want) {
					t.Errorf("%s, %v: exit code %d, %s is told: %v\n%s", c.name, args, out.code, code, told, out.stderr)
				}
			}
		}
	}
}
