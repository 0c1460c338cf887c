package kubeapi

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
)

// WithRBAC is the flag of a server that asks for rights. Without it everybody may do everything.
const WithRBAC = "--authorization-mode=RBAC"

// token is that of the administrator.
const token = "machinery-of-the-test"

// Options say how a server runs. Dir, Etcd and Port are required.
type Options struct {
	// Dir is a directory for its files.
	Dir string
	// Etcd is the URL of the etcd that it stores in.
	Etcd string
	// Port is its port on the loopback.
	Port int
	// ServiceRange has the addresses of Services; the default is 10.96.0.0/16.
	ServiceRange string
	// Users is the certificate of the authority of users, in PEM; empty is none.
	Users []byte
	// Tokens are the tokens of users besides the administrator, as --token-auth-file has them.
	Tokens string
	// Flags are added.
	Flags []string
}

// Server is a server that can be started.
type Server struct {
	API
	// Args are its arguments.
	Args []string
	// CA is the file of its certificate, once it runs. Tokens is the file with the tokens of users,
	// which it reads at its start.
	CA, Tokens string
}

// Prepare writes the files of a server.
func Prepare(o Options) (*Server, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(o.Dir, name) }
	files := map[string][]byte{
		"sa.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"tokens": []byte(token + ",tester,tester,system:masters\n" + o.Tokens),
	}
	args := []string{
		"--etcd-servers=" + o.Etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", o.Port), "--cert-dir=" + in("certs"),
		"--token-auth-file=" + in("tokens"), "--service-account-issuer=https://localhost",
		"--service-account-key-file=" + in("sa.key"), "--service-account-signing-key-file=" + in("sa.key"),
		"--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=" + cmp.Or(o.ServiceRange, "10.96.0.0/16"),
	}
	if len(o.Users) > 0 {
		files["users.pem"] = o.Users
		args = append(args, "--client-ca-file="+in("users.pem"))
	}
	if !slices.Contains(o.Flags, WithRBAC) {
		args = append(args, "--authorization-mode=AlwaysAllow")
	}
	for name, content := range files {
		if err := os.WriteFile(in(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 32,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its certificate is its own
	}
	return &Server{
		API:  API{URL: fmt.Sprintf("https://127.0.0.1:%d", o.Port), Token: token, Client: &http.Client{Transport: transport}},
		Args: append(args, o.Flags...), CA: in("certs/apiserver.crt"), Tokens: in("tokens"),
	}, nil
}
