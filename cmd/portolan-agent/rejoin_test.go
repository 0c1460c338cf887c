package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// joined returns the file of an agent that has joined, with all of it in a directory.
func joined(dir string) config.Config {
	return config.Config{
		API: []string{"https://127.0.0.1:1"}, XDS: []string{"127.0.0.1:1"}, State: dir, Run: dir,
		Proxy: config.Proxy{Type: node.Sidecar, Name: "vm", Namespace: "shop", ServiceAccount: "web", Group: "web", IPs: []string{"127.0.0.1"}},
	}
}

// TestJoinAsAnother: an invitation that would make the machine another one is refused before it is used,
// unless that is asked for, and the error names both.
func TestJoinAsAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		invited invitation.Invitation
		flags   []string
		says    []string
		code    int
	}{
		"the same":          {invited: invitation.Invitation{Namespace: "shop", ServiceAccount: "web", Group: "web"}, says: []string{"cannot reach the server"}, code: exit.Unreachable},
		"another group":     {invited: invitation.Invitation{Namespace: "shop", ServiceAccount: "web", Group: "db"}, says: []string{"is shop/web, in the group web, and the invitation is for shop/web, in the group db: nothing has changed here", "--replace"}, code: exit.Data},
		"another account":   {invited: invitation.Invitation{Namespace: "shop", ServiceAccount: "db", Group: "web"}, says: []string{"for shop/db, in the group web"}, code: exit.Data},
		"another namespace": {invited: invitation.Invitation{Namespace: "bank", ServiceAccount: "web", Group: "web"}, says: []string{"for bank/web, in the group web"}, code: exit.Data},
		"no group":          {invited: invitation.Invitation{Namespace: "shop", ServiceAccount: "web"}, says: []string{"for shop/web, in no group, so it would not be registered any more"}, code: exit.Data},
		"replaced":          {invited: invitation.Invitation{Namespace: "bank", ServiceAccount: "web"}, flags: []string{"--replace"}, says: []string{"cannot reach the server"}, code: exit.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := joined(filepath.Dir(file)).Write(file); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c.invited.API, c.invited.XDS, c.invited.Token = []string{"https://127.0.0.1:1"}, []string{"127.0.0.1:1"}, "t"
			text, err := c.invited.Text()
			if err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code := execute(t.Context(), append([]string{"join", text, "--config", file}, c.flags...), &stdout, &stderr)
			for _, want := range c.says {
				if code != c.code || !strings.Contains(stderr.String(), want) {
					t.Errorf("%d, without %q: %s", code, want, stderr.String())
				}
			}
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file is\n%s\n%v", after, err)
			}
		})
	}
}

// TestTheRunningAgentIsToldOfAJoin: it takes the next certificate of the same machine at once, and is
// left as it is if it is to be another machine.
func TestTheRunningAgentIsToldOfAJoin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := joined(dir)
	was := memberOf(c.Proxy)
	if got := reload(t.Context(), c, "f.yaml", was); got != "" {
		t.Errorf("nobody runs: %q", got)
	}
	l, err := socket.Listen(c.StatusSocket())
	if err != nil {
		t.Fatal(err)
	}
	calls := make(chan string, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error {
		return serveHTTP(ctx, l, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { calls <- r.Method + " " + r.URL.Path })})
	})
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	if got := reload(t.Context(), c, "f.yaml", was); !strings.Contains(got, "has the new certificate") || <-calls != "POST /reload" {
		t.Errorf("the same machine: %q", got)
	}
	c.Proxy.Group = "db"
	got := reload(t.Context(), c, "f.yaml", was)
	if call := <-calls; call != "GET /status" || !strings.Contains(got, "goes on as shop/web, in the group web until it is started again") || !strings.Contains(got, "portolan-agent run --config f.yaml") {
		t.Errorf("another machine: %q, %s", got, call)
	}
}
