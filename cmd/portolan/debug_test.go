package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// TestDebugBundleOfARunningServer: a server gives every part, and its settings are those that
// it was started with.
func TestDebugBundleOfARunningServer(t *testing.T) {
	t.Parallel()
	server, _, _ := serveIn(t, t.TempDir(), "--log-level", "debug", "--max-watches", "77")
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	if o := do(t, "", "debug", "bundle", file, "--server", server); o.Code != exit.OK || o.Err != "" || !strings.HasPrefix(o.Out, "saved "+file) {
		t.Fatalf("%+v", o)
	}
	files := map[string][]byte{}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[filepath.Base(header.Name)], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	for name, has := range map[string]string{
		"readyz.txt": "[+] xds ok", "metrics.txt": "portolan_store_up 1", "registered-metrics.txt": `fqName: "portolan_xds_rejections_total"`,
		"log.txt": "msg=ready", "goroutines.txt": "goroutine profile", "store.json": `"StoreStatus"`, "proxies.json": `"ProxyList"`, "findings.json": `"items"`,
		"events.json": `"items"`, "audit.json": `"RecordList"`, "sources.json": `"store"`,
	} {
		if !strings.Contains(string(files[name]), has) {
			t.Errorf("%s has no %q: %.300s", name, has, files[name])
		}
	}
	var settings maintenance.Settings
	if err := json.Unmarshal(files["settings.json"], &settings); err != nil {
		t.Fatal(err)
	}
	given := map[string]maintenance.Setting{}
	for _, s := range settings.Items {
		given[s.Name] = s
	}
	if given["max-watches"] != (maintenance.Setting{Name: "max-watches", Value: "77", Given: true}) || given["machine-lease"].Value == "" || given["machine-lease"].Given {
		t.Errorf("settings: %+v", settings.Items)
	}
}
