package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// The directories of the package's drop-ins, and of those of the unit.
const (
	packagedDropIns = "/usr/share/portolan-agent"
	unitDropIns     = "/etc/systemd/system/portolan-agent.service.d"
)

// The drop-ins that give the unit a capability: to capture traffic, and for ports below 1024, which
// the Envoy of a gateway or of a sidecar without capture listens on itself.
const captureDropIn, gatewayDropIn = "capture.conf", "gateway.conf"

// giveCapabilities gives the unit of the package the capabilities that a machine needs, and takes
// those away that it needs no more. Without the package it does nothing.
func giveCapabilities(c config.Config, packaged, unit string) error {
	var err error
	for name, needed := range map[string]bool{captureDropIn: c.Capture != nil, gatewayDropIn: c.Proxy.Type == node.Router || c.Capture == nil} {
		text, missing := os.ReadFile(filepath.Join(packaged, name))
		switch at := filepath.Join(unit, name); {
		case missing != nil:
		case needed:
			if err = errors.Join(err, os.MkdirAll(unit, 0o755)); err == nil {
				err = renameio.WriteFile(at, text, 0o644)
			}
		default:
			err = errors.Join(err, removed(at))
		}
	}
	return err
}

// takeCapabilities takes all of them away.
func takeCapabilities(unit string) error {
	return errors.Join(removed(filepath.Join(unit, captureDropIn)), removed(filepath.Join(unit, gatewayDropIn)))
}

// reloadUnits has systemd read the drop-ins of the unit. Without systemd, or without the package, it
// does nothing.
func reloadUnits(ctx context.Context) error {
	for _, needed := range []string{"/run/systemd/system", packagedDropIns} {
		if _, err := os.Stat(needed); err != nil {
			return nil
		}
	}
	if out, err := exec.CommandContext(ctx, "systemctl", "daemon-reload").CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl daemon-reload: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// removed deletes a file that may be missing.
func removed(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
