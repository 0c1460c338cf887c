package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
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

// resource is the version of a resource that an Envoy has from the control plane, and since
// when.
type resource struct{ version, since string }

// held returns the resources of each proxy, read from Envoy itself.
func (d *demo) held(ctx context.Context) ([]map[string]resource, error) {
	var out []map[string]resource
	for _, p := range d.proxies {
		text, err := get(ctx, "", "http://"+p.admin+"/config_dump")
		if err != nil {
			return nil, err
		}
		resources, err := readDump([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("config dump of %s: %w", p.name, err)
		}
		out = append(out, resources)
	}
	return out, nil
}

// readDump finds the clusters, listeners and routes that came over xDS.
func readDump(text []byte) (map[string]resource, error) {
	var dump struct{ Configs []map[string]json.RawMessage }
	if err := json.Unmarshal(text, &dump); err != nil {
		return nil, err
	}
	out := map[string]resource{}
	for _, section := range dump.Configs {
		for key, raw := range section {
			if strings.HasPrefix(key, "dynamic_") {
				if err := readSection(key, raw, out); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is nothing in it")
	}
	return out, nil
}

func readSection(key string, raw json.RawMessage, into map[string]resource) error {
	type state struct {
		VersionInfo string `json:"version_info"`
		LastUpdated string `json:"last_updated"`
	}
	type named struct {
		Name string `json:"name"`
	}
	var entries []struct {
		state
		named
		Cluster     named `json:"cluster"`
		RouteConfig named `json:"route_config"`
		ActiveState state `json:"active_state"`
	}
	if err := json.Unmarshal(raw, &entries); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	for _, x := range entries {
		name := key + " " + x.Name + x.Cluster.Name + x.RouteConfig.Name
		into[name] = resource{
			version: x.VersionInfo + x.ActiveState.VersionInfo,
			since:   x.LastUpdated + x.ActiveState.LastUpdated,
		}
	}
	return nil
}

func equal(a, b map[string]resource) bool { return maps.Equal(a, b) }
