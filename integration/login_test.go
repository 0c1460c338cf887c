package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
)

// loginIssuer is a TokenIssuer for the login of users, with rights to write.
func loginIssuer(issuer *jwkstest.Issuer) string {
	return tokenIssuer("corp", issuer, "audiences: [portolan-cli]",
		"users: {username: email, groups: groups, login: {clientId: portolan-cli, scopes: [email, groups, offline_access]}}") + `---
apiVersion: portolan.io/v1
kind: RoleBinding
metadata: {name: developers, namespace: istio-system}
spec:
  role: editor
  subjects: [{kind: Group, name: "corp:dev"}]
`
}

// TestPeopleLogIn: a user logs in over TLS, with a provider that the server names. Commands
// continue beyond the expiry of tokens, also a watch. No secret is shown or logged.
func TestPeopleLogIn(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{args: []string{"--log-level", "debug"}})
	issuer := jwkstest.New(t)
	device := issuer.Device(t, "portolan-cli", 5*time.Second, map[string]any{"sub": "1", "email": "ann@corp.example", "groups": []string{"dev"}})
	s.apply(loginIssuer(issuer), plainEntry("early"))
	contexts := filepath.Join(t.TempDir(), "contexts.yaml")
	portolan := func(ctx context.Context, args ...string) (*exec.Cmd, *lockedBuffer) {
		c, out := exec.CommandContext(ctx, binary, args...), &lockedBuffer{}
		c.Env = append(os.Environ(), "PORTOLAN_CONFIG="+contexts)
		c.Stdout, c.Stderr = out, out
		return c, out
	}
	shown := ""
	run := func(args ...string) (string, error) {
		c, out := portolan(t.Context(), args...)
		err := c.Run()
		shown += out.String()
		return out.String(), err
	}
	https := "https://" + s.api
	eventually(t, "the server says how to log in, and logs in", func() error {
		out, err := run("login", "--context", "prod", "--server", https, "--ca", s.files.CA)
		if err != nil || !strings.Contains(out, "You are corp:ann@corp.example at "+https+", by the context prod.") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if out, err := run("delete", "serviceentry", "early", "-n", "shop", "--yes"); err != nil {
		t.Errorf("delete: %v: %s", err, out)
	}
	if out := s.must("", "audit", "-n", "shop"); !strings.Contains(out, "corp:ann@corp.example") {
		t.Errorf("audit: %s", out)
	}
	if out, err := run("auth", "whoami"); err != nil || !strings.Contains(out, "corp:dev") || !strings.Contains(out, "istio-system/developers") {
		t.Errorf("whoami: %v: %s", err, out)
	}

	// The tokens live for some seconds: a watch continues beyond their expiry.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := device.Refreshes()
	watch, seen := portolan(ctx, "get", "serviceentries", "-n", "shop", "-w")
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- watch.Wait() }()
	eventually(t, "the watch outlives tokens", func() error {
		if n := device.Refreshes(); n == before {
			return fmt.Errorf("%d refreshes: %s", n, seen)
		}
		return nil
	})
	s.apply(plainEntry("late"))
	eventually(t, "the watch goes on", func() error {
		if !strings.Contains(seen.String(), "late") {
			return fmt.Errorf("seen: %s", seen)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Errorf("the watch ended: %v: %s", err, seen)
	default:
	}
	cancel()
	<-done
	shown += seen.String()

	shown += s.process.output()
	for _, secret := range device.Secrets() {
		if strings.Contains(shown, secret) {
			t.Errorf("a secret is shown: %s", secret)
		}
	}
}

// lockedBuffer collects the output of a running process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
