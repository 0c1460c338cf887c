package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersion: a binary that is too old, or is no Envoy, is refused.
func TestVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, want, fault string }{
		"good":     {"envoy  version: 84813d76d8/1.40.0/Clean/RELEASE/BoringSSL", "1.40.0", ""},
		"newer":    {"envoy  version: 84813d76d8/1.41.2/Clean/RELEASE/BoringSSL", "1.41.2", ""},
		"too old":  {"envoy  version: 84813d76d8/1.39.9/Clean/RELEASE/BoringSSL", "", "is Envoy 1.39.9: use 1.40 or later"},
		"no Envoy": {"hello", "", "does not say which Envoy it is"},
	} {
		path := filepath.Join(t.TempDir(), "envoy")
		if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\necho '%s'\n", c.says)), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := Version(t.Context(), path)
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestConnections: connections of workers are in the sum of their listener, and those of the admin
// interface do not count.
func TestConnections(t *testing.T) {
	t.Parallel()
	text := "listener.127.0.0.1_80.downstream_cx_active: 3\nlistener.127.0.0.1_80.worker_0.downstream_cx_active: 3\nlistener.admin.downstream_cx_active: 1\nlistener.0.0.0.0_15006.downstream_cx_active: 2\n"
	if got := connections(text); got != 5 {
		t.Errorf("%d, want 5", got)
	}
	if got := connections(""); got != 0 {
		t.Errorf("%d of nothing", got)
	}
}
