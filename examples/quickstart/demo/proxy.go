package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// identity describes a proxy to the control plane.
type identity struct{ name, kind, ip, labels string }

// proxy is a running Envoy.
type proxy struct {
	*process
	name  string
	admin string // host:port
}

// startProxy runs an Envoy from the bootstrap that the command line prints.
func (d *demo) startProxy(ctx context.Context, who identity, adminPort int) (*proxy, error) {
	p := &proxy{name: who.kind, admin: local(adminPort)}
	args := []string{
		"bootstrap", "--type", who.kind, "--name", who.name, "-n", "shop", "--ip", who.ip, "--labels", who.labels,
		"--xds-address", local(d.ports.xds), "--admin-address", p.admin,
	}
	config := who.name + "-envoy.yaml"
	d.console.typed(d.commandText(args) + " > $DEMO/" + config)
	out, err := d.output(ctx, args...)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.path(config), []byte(out), 0o600); err != nil {
		return nil, err
	}
	options := []string{"-c", d.path(config), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"}
	d.console.typed(envoyBinary + " " + strings.ReplaceAll(strings.Join(options, " "), d.dir, "$DEMO") + " &")
	if p.process, err = launch(d.dir, "envoy-"+who.name, envoyBinary, options...); err != nil {
		return nil, err
	}
	return p, d.await(ctx, who.name+" is ready", func() error {
		if err := p.ended(); err != nil {
			return err
		}
		_, err := get(ctx, "", "http://"+p.admin+"/ready")
		return err
	})
}

// held returns the resources that each Envoy has from the control plane, with their versions
// and since when.
func (d *demo) held(ctx context.Context) (resources [2][]string, err error) {
	for i, p := range d.proxies {
		text, err := get(ctx, "", "http://"+p.admin+"/config_dump")
		if err != nil {
			return resources, err
		}
		var dump struct{ Configs []map[string]any }
		if err := json.Unmarshal([]byte(text), &dump); err != nil {
			return resources, fmt.Errorf("config dump of %s: %w", p.name, err)
		}
		for _, section := range dump.Configs {
			for key, value := range section {
				if entries, ok := value.([]any); ok && strings.HasPrefix(key, "dynamic_") {
					for _, entry := range entries {
						resources[i] = append(resources[i], fmt.Sprint(entry)) // maps in the order of their keys
					}
				}
			}
		}
		slices.Sort(resources[i])
	}
	return resources, nil
}
