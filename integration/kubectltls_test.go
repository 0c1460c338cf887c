package integration

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKubectlWithAToken: kubectl over TLS, with the token of a user and a kubeconfig with the
// authority of the mesh, can do what the user's role permits and nothing else.
func TestKubectlWithAToken(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{})
	k := newKubectl(t, s.server)
	s.must("", "user", "create", "alice", "--role", "admin")
	socket := func(args ...string) string { // creates further users, which the port now refuses without a token
		t.Helper()
		o := command(t, "", append(args, "--server", "unix://"+s.o.dataDir+"/api.sock")...)
		if o.code != 0 {
			t.Fatalf("%v: %+v", args, o)
		}
		return strings.TrimSpace(o.stdout)
	}
	editor := socket("user", "create", "bob", "--role", "editor", "-n", "shop")
	_, port, err := net.SplitHostPort(s.api)
	if err != nil {
		t.Fatal(err)
	}
	config := write(t, "kubeconfig", fill(`
apiVersion: v1
kind: Config
clusters:
- {name: mesh, cluster: {server: "https://localhost:$port", certificate-authority: "$ca"}}
users:
- {name: bob, user: {token: "$token"}}
contexts:
- {name: mesh, context: {cluster: mesh, user: bob, namespace: shop}}
current-context: mesh
`, "$port", port, "$ca", s.files.CA, "$token", editor))
	k.args = []string{"--kubeconfig=" + config}
	words := func(line string) []string { return strings.Fields(line) }

	k.expectOutput(true, "", words("auth whoami"), "bob", "authenticated")
	k.expectOutput(true, "", words("auth can-i create serviceentries.networking.istio.io"), "yes\n")
	k.expectOutput(false, "", words("auth can-i create serviceentries.networking.istio.io -n bank"), "no - user")
	k.expectOutput(false, "", words("auth can-i create roles.portolan.io"), "no - user")
	k.expectOutput(true, "", words("auth can-i --list"), "serviceentries", "[create update delete]")
	k.expectOutput(true, "", words("get serviceentries"), "No resources found in shop namespace.")
	k.expectOutput(true, "", words("get crd"), "No resources found") // Terraform asks, whatever its role

	// A watch shows changes as they happen.
	watch := exec.CommandContext(t.Context(), k.path, append(words("get serviceentries --watch -o name"), k.args...)...)
	watch.Env = []string{"HOME=" + k.home}
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			mu.Lock()
			seen = append(seen, lines.Text())
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = watch.Process.Kill()
		<-read
		_ = watch.Wait()
	})
	watched := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("the watch has %d events", n), func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(seen) < n || seen[n-1] != "serviceentry.networking.istio.io/web" {
				return fmt.Errorf("it has %q", seen)
			}
			return nil
		})
	}
	web := ship("shop", "web", "10.0.0.1")
	k.expectOutput(true, web, words("apply --validate=false -f -"), "serviceentry.networking.istio.io/web created")
	watched(1)
	k.expectOutput(true, strings.Replace(web, "10.0.0.1", "10.0.0.2", 1), words("replace --validate=false -f -"), "web replaced")
	watched(2)

	// Beyond the user's rights, and without any.
	k.expectOutput(false, "", words("get serviceentries -n bank"), "Forbidden", `user "bob" may not list serviceentries in namespace bank`)
	k.expectOutput(false, "", words("get serviceentries -A"), "Forbidden", "in all namespaces")
	k.expectOutput(false, ship("bank", "web", "10.0.0.1"), words("create --validate=false -f - -n bank"), "Forbidden", `user "bob" may not`)
	k.expectOutput(false, "", words("get serviceentries --token put_nobody"), "the token is not valid")

	// When the rights end, the watch ends too.
	socket("user", "disable", "bob")
	eventually(t, "a disabled user is turned away", func() error {
		if out, ok := k.run("", words("get serviceentries")...); ok || !strings.Contains(out, "the token is not valid") {
			return errors.New(out)
		}
		return nil
	})
	select {
	case <-read:
	case <-time.After(patience):
		t.Error("the watch goes on")
	}
}
