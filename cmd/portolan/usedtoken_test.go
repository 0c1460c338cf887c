package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestAUsedTokenNamesOneRemedy: the server says that another is needed, and the command which makes it.
func TestAUsedTokenNamesOneRemedy(t *testing.T) {
	t.Parallel()
	server, _, _ := serveIn(t, t.TempDir(), "--secure-xds-address", "127.0.0.1:0")
	https := strings.Replace(server, "http:", "https:", 1)
	token := clitest.Write(t, map[string]string{"token": do(t, "", "token", "create", "-n", "shop", "--service-account", "web", "--server", server).Out}) + "/token"
	request := func() clitest.Outcome {
		return do(t, "", "certificate", "request", "--out", filepath.Join(t.TempDir(), "web"), "--server", https, "--token-file", token)
	}
	if o := request(); o.Code != exit.OK {
		t.Fatalf("the first use: %+v", o)
	}
	o := request()
	if o.Code != exit.Forbidden || !strings.Contains(o.Err, "is used up: it was good for one use: make another: portolan token create makes one\n") || strings.Count(o.Err, "portolan ") != 1 {
		t.Errorf("the second: %+v", o)
	}
}
