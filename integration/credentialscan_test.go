package integration

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	istio "istio.io/api/security/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// keyFiles are the files of a data directory that contain keys.
var keyFiles = map[string]string{"sealing.key": "the sealing key", "peers/ca-key.pem": "the key of the store's authority", "peers/key.pem": "the key of the store's member"}

// TestCredentialsAreNowhereInTheClear uses a credential of each kind on each port that accepts
// it, and some that are refused. Afterwards neither a credential nor a key of the server is in
// the store, a snapshot, an export, the log, the metrics or an answer. Only the known key files
// have keys, and only the server's user can read them.
func TestCredentialsAreNowhereInTheClear(t *testing.T) {
	t.Parallel()
	s := startFounder(t, newMemberAt(t, "cp-1"), "--log-level", "debug", "--anonymous-loopback")
	corp, ci := jwkstest.New(t), jwkstest.New(t)
	device := corp.Device(t, "portolan-cli", time.Hour, map[string]any{"sub": "1", "email": "ann@corp.example", "groups": []string{"dev"}})
	pair := secrettest.New(t, time.Hour, "door.example")
	s.apply(loginIssuer(corp), tlsSecret("door", pair), plainEntry("a-word-to-be-found"), tokenIssuer("ci", ci, forPortolan, "users: {groups: groups}", subjectIs("web", "shop")))
	roots := write(t, "roots.pem", s.must("", "ca", "root"))
	var secrets scanner
	made := func(what string, args ...string) string {
		text := strings.TrimSpace(s.must("", args...))
		secrets.addText(what, secretOf(text))
		return text
	}
	signed := func(by *jwkstest.Issuer, what, subject string) string {
		token := by.Sign(t, map[string]any{"iss": ci.URL, "aud": "portolan", "sub": subject, "jti": what, "exp": time.Now().Add(time.Hour).Unix()})
		secrets.addText(what, secretOf(token))
		return token
	}
	joinToken := func(what string) string {
		return made(what, "token", "create", "-n", "shop", "--service-account", "web")
	}
	expectCode := func(what string, o outcome, code int) {
		t.Helper()
		if o.code != code {
			t.Errorf("%s: exit code %d, not %d: %s", what, o.code, code, o.stderr)
		}
	}

	// Users of the config API.
	expectCode("a user's token", s.try("", "auth", "whoami", "--token", made("the token of a user", "user", "create", "alice", "--role", "admin")), 0)
	disabled := made("the token of a user who is disabled", "user", "create", "mallory")
	s.must("", "user", "disable", "mallory")
	expectCode("a disabled user's token", s.try("", "get", "serviceentries", "-A", "--token", disabled), 77)
	const guess = "put_AGUESSTHATISALMOSTATOKENOFSOMEBODYWHOMAYCOMEIN234567AA"
	secrets.addText("a guessed token", secretOf(guess))
	expectCode("a guess", s.try("", "get", "serviceentries", "-A", "--token", guess), 77)
	user := signed(ci, "the JWT of a user", "anna")
	eventually(t, "the server knows the issuer", func() error {
		if o := s.try("", "auth", "whoami", "--token", user); o.code != 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	expectCode("a forged JWT", s.try("", "get", "serviceentries", "-A", "--token", signed(jwkstest.New(t), "a forged JWT", "anna")), 77)
	const password = "correct-horse-battery-staple"
	secrets.addText("a password", password)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/apis/networking.istio.io/v1/serviceentries?access_token="+password), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("alice", password)
	if response, err := s.client.Do(r); err != nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a password: %v %v", response, err)
	} else {
		_ = response.Body.Close()
	}
	contexts := filepath.Join(t.TempDir(), "contexts.yaml")
	login := exec.CommandContext(t.Context(), binary, "login", "--context", "prod", "--server", "https://"+s.api, "--ca", roots)
	login.Env = append(os.Environ(), "PORTOLAN_CONFIG="+contexts)
	if out, err := login.CombinedOutput(); err != nil {
		t.Errorf("login: %v: %s", err, out)
	}
	for i, secret := range device.Secrets() {
		if secret = secretOf(secret); len(secret) >= 12 { // short ones are what a person types, which is shown
			secrets.addText(fmt.Sprintf("token %d of the login", i), secret)
		}
	}

	// Machines, through the config API.
	machine := func(what, token string, code int) {
		dir := filepath.Join(t.TempDir(), "machine")
		expectCode(what, command(t, "", "certificate", "request", "--out", dir, "--server", "https://"+s.api, "--ca", roots, "--token-file", write(t, "token", token)), code)
		if text, err := os.ReadFile(filepath.Join(dir, "key.pem")); err == nil {
			secrets.add(t, what+": the key of the machine", pairOf(t, string(text)))
		} else if code == 0 {
			t.Error(err)
		}
	}
	used := joinToken("a join token")
	machine("a join token", used, 0)
	machine("a join token that was used up", used, 77)
	machine("the JWT of a machine", signed(ci, "the JWT of a machine", "web"), 0)

	// Machines, through gRPC: certificates as Istio's agents request them, and xDS.
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(s.must("", "ca", "root")))
	conn, err := grpc.NewClient(announcedSecure.FindStringSubmatch(s.process.output())[1], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "localhost"})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	agent, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(agent)
	if err != nil {
		t.Fatal(err)
	}
	secrets.add(t, "the key of an agent", pairOf(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))))
	request := csr(t, agent, &x509.CertificateRequest{})
	used = joinToken("a join token of an agent")
	for what, c := range map[string]struct {
		token string
		code  codes.Code
	}{
		"a join token": {used, codes.OK}, "a JWT": {signed(ci, "the JWT of an agent", "web"), codes.OK}, "a guess": {guess, codes.Unauthenticated},
		"a forged JWT": {signed(jwkstest.New(t), "the forged JWT of an agent", "web"), codes.Unauthenticated},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+c.token)
		if _, err := istio.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &istio.IstioCertificateRequest{Csr: request}); status.Code(err) != c.code {
			t.Errorf("an agent with %s: %v", what, err)
		}
	}
	for token, code := range map[string]codes.Code{
		signed(jwkstest.New(t), "the forged JWT of a proxy", "web"): codes.Unauthenticated, guess: codes.Unauthenticated, joinToken("the join token of a proxy"): codes.Unauthenticated,
		signed(ci, "the JWT of a proxy", "web"): codes.OK,
	} {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&discoveryv3.DiscoveryRequest{Node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", nil), TypeUrl: resource.ClusterType}) // Recv has the error
		if _, err := stream.Recv(); status.Code(err) != code {
			t.Errorf("a proxy: %v, and not %v", err, code)
		}
	}

	// Servers.
	bare, _, _ := strings.Cut(s.invite(newMemberAt(t, "cp-2")), "_roots-")
	secrets.addText("the token of a member", secretOf(bare))
	joining, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{bare[:len(bare)-4] + "AAAA", bare} {
		if code, said := s.postJoin(token, csr(t, joining, &x509.CertificateRequest{})); (code == http.StatusOK) != (token == bare) {
			t.Errorf("a member: %d %s", code, said)
		}
	}
	if _, err := s.get("/"+bare, nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a token in the wrong place: %v", err)
	}
	expectCode("a token in the wrong place", s.try("", "get", "serviceentries", bare, "-n", "shop", "--token", guess), 77)
	s.must("", "secret", "key", "add")
	s.must("", "secret", "reseal")
	root := func(what string) {
		secrets.add(t, what, pairOf(t, s.must("", "secret", "read", "portolan-ca", "ca-key.pem", "-n", "istio-system")))
	}
	root("the key of the authority")
	s.must("", "ca", "rotate", "start")
	root("the next key of the authority")
	secrets.add(t, "the key of a secret", pair)
	for file, what := range keyFiles {
		text, err := os.ReadFile(filepath.Join(s.o.dataDir, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		if file != "sealing.key" {
			secrets.add(t, what, pairOf(t, string(text)))
			continue
		}
		for line := range strings.Lines(string(text)) {
			if encoded, ok := strings.CutPrefix(strings.TrimSpace(line), "portolan-sealing-key-1:"); ok {
				number, err := base64.RawURLEncoding.DecodeString(encoded)
				if err != nil || len(number) != 32 {
					t.Fatalf("a sealing key of %d bytes: %v", len(number), err)
				}
				secrets.addText(what, encoded)
				secrets.addText(what, string(number))
			}
		}
	}

	// All places where these could show up.
	var word scanner
	word.addText("the word", "a-word-to-be-found")
	eventually(t, "the proxy has its configuration", func() error {
		if out := s.try("", "proxy", "config", "all", "web", "-o", "json").stdout; len(word.scan([]byte(out))) == 0 {
			return errors.New(out)
		}
		return nil
	})
	seen := map[string][]byte{}
	snapshot := filepath.Join(t.TempDir(), "mesh.snapshot")
	s.must("", "store", "backup", "--without-keys", snapshot)
	kinds := []string{}
	for line := range strings.Lines(s.must("", "api-resources")) {
		if fields := strings.Fields(line); fields[0] != "NAME" {
			kinds = append(kinds, fields[0])
		}
	}
	for _, args := range [][]string{
		{"get", strings.Join(kinds, ","), "-A", "-o", "yaml"}, {"get", strings.Join(kinds, ","), "-A", "-o", "json"}, {"export"}, {"audit", "-o", "json"}, {"audit", "--refused", "-o", "json"},
		{"history", "secret/door", "-n", "shop", "-o", "json"}, {"history", "secret/portolan-ca", "-n", "istio-system", "-o", "json"}, {"history", "user/alice", "-n", "istio-system", "-o", "json"},
		{"token", "list", "-A", "-o", "json"}, {"user", "list", "-o", "json"}, {"user", "token", "list", "alice"}, {"secret", "status", "-o", "json"}, {"secret", "list", "-A"}, {"ca", "status"},
		{"analyze", "-A"}, {"proxy", "status", "-o", "json"}, {"proxy", "config", "all", "web", "-o", "json"},
		{"store", "member", "list"},
	} {
		o := s.try("", args...)
		expectCode(strings.Join(args, " "), o, 0)
		seen["portolan "+strings.Join(args, " ")] = []byte(o.stdout + o.stderr)
	}
	for _, path := range []string{"/metrics", "/readyz?verbose", "/apis/portolan.io/v1/records?objects=true&limit=500", "/apis/portolan.io/v1/login"} {
		if seen[path], err = s.get(path, nil); err != nil {
			t.Error(err)
		}
	}
	for name, text := range s.bundle("--node", "web") {
		seen["the debug bundle: "+name] = text
	}
	if seen["the snapshot"], err = os.ReadFile(snapshot); err != nil {
		t.Fatal(err)
	}
	seen["the log"] = []byte(s.process.output())
	for where, text := range seen {
		for _, what := range secrets.scan(text) {
			t.Errorf("%s has %s", where, what)
		}
	}
	found := map[string]bool{}
	for path, text := range filesBelow(t, s.o.dataDir, "") {
		file, _ := filepath.Rel(s.o.dataDir, path)
		file = filepath.ToSlash(file)
		for _, what := range secrets.scan(text) {
			if own := keyFiles[file]; own == "" || !strings.HasPrefix(what, own) {
				t.Errorf("%s has %s", file, what)
			}
			found[file] = true
		}
		if info, err := os.Stat(path); err != nil || keyFiles[file] != "" && info.Mode() != fs.FileMode(0o600) {
			t.Errorf("%s is %v, %v", file, info.Mode(), err)
		}
	}
	if info, err := os.Stat(contexts); err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("the contexts: %v, %v", info, err)
	}

	// The scan itself works: it finds the keys in their files, and credentials in what it saw.
	for file := range keyFiles {
		if !found[file] {
			t.Errorf("the key in %s is not found", file)
		}
	}
	for _, where := range []string{"the snapshot", "portolan export", "portolan audit -o json", "portolan proxy config all web -o json", "the debug bundle: proxy-1-web.json"} {
		if len(word.scan(seen[where])) == 0 {
			t.Errorf("%s does not have a word that it should", where)
		}
	}
	for where, words := range map[string]string{"the log": "level=DEBUG", "the debug bundle: log.txt": "level=DEBUG", "the debug bundle: audit.json": "RecordList", "portolan audit --refused -o json": "the token is not valid", "/metrics": "portolan_certificates_refused_total"} {
		if !strings.Contains(string(seen[where]), words) {
			t.Errorf("%s does not have %q", where, words)
		}
	}
}

// secretOf returns the secret part of a token: what follows its id, or the signature of a JWT.
func secretOf(token string) string {
	if strings.Count(token, ".") == 2 {
		return token[strings.LastIndex(token, ".")+1:]
	}
	longest := ""
	for part := range strings.SplitSeq(token, "_") {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// pairOf returns a private key in PEM in the form that a scanner takes.
func pairOf(t *testing.T, text string) secrettest.Pair {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatal("it is not in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return secrettest.Pair{Key: []byte(text), Private: key.(crypto.Signer)}
}
