package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// TestCapabilitiesOfTheUnit: a unit has the capabilities that its machine needs, and no others.
func TestCapabilitiesOfTheUnit(t *testing.T) {
	t.Parallel()
	packaged, unit := t.TempDir(), filepath.Join(t.TempDir(), "unit.d")
	for _, name := range []string{captureDropIn, gatewayDropIn} {
		if err := os.WriteFile(filepath.Join(packaged, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has := func() string {
		files, _ := filepath.Glob(filepath.Join(unit, "*"))
		for i, f := range files {
			files[i] = filepath.Base(f)
		}
		return strings.Join(files, " ")
	}
	for _, c := range []struct {
		config config.Config
		want   string
	}{
		{config.Config{}, gatewayDropIn},
		{config.Config{Capture: &config.Capture{}}, captureDropIn},
		{config.Config{Capture: &config.Capture{}}, captureDropIn}, // again
		{config.Config{Proxy: config.Proxy{Type: node.Router}}, gatewayDropIn},
		{config.Config{Capture: &config.Capture{}, Proxy: config.Proxy{Type: node.Router}}, captureDropIn + " " + gatewayDropIn},
	} {
		if err := giveCapabilities(c.config, packaged, unit); err != nil || has() != c.want {
			t.Errorf("it has %q, want %q: %v", has(), c.want, err)
		}
	}
	if err := takeCapabilities(unit); err != nil || has() != "" {
		t.Errorf("left are %q: %v", has(), err)
	}
	if err := giveCapabilities(config.Config{Capture: &config.Capture{}}, t.TempDir(), unit); err != nil || has() != "" {
		t.Errorf("without the package it has %q: %v", has(), err)
	}
}
