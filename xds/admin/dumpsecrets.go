package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// addSecret adds a secret that came over SDS, unless it has no content yet.
func (d *Dump) addSecret(text json.RawMessage) error {
	message, err := messageOf(text)
	if err != nil {
		return err
	}
	if s, ok := message.(*tlsv3.Secret); ok {
		if described := describeSecret(s); described != nil {
			d.Secrets[s.GetName()] = described
		}
	}
	return nil
}

// addNeeders notes which clusters and listeners of the dump name each secret.
func (d *Dump) addNeeders() error {
	by := needers{}
	for typeURL := range needersOf {
		for name, message := range d.Resources[typeURL] {
			needs, err := resource.NeedsOf(message)
			if err != nil {
				return fmt.Errorf("%s%s: %w", needersOf[typeURL], name, err)
			}
			by.add(typeURL, name, slices.Values(needs))
		}
	}
	for name, s := range d.Secrets {
		s.NeededBy = slices.Sorted(slices.Values(by[name]))
	}
	return nil
}

// TakeSecrets replaces the secrets of the configuration by those of an Envoy's dump. Those that
// the server does not list have no state, and those that the dump lacks no content.
func (c *ProxyConfig) TakeSecrets(d *Dump) {
	for i := range c.Types {
		t := &c.Types[i]
		if t.TypeURL != resource.SecretType {
			continue
		}
		rest := maps.Clone(d.Secrets)
		for j := range t.Resources {
			r := &t.Resources[j]
			r.Secret = rest[r.Name]
			delete(rest, r.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(rest)) {
			t.Resources = append(t.Resources, ProxyResource{Name: name, Secret: rest[name]})
		}
		slices.SortFunc(t.Resources, func(a, b ProxyResource) int { return strings.Compare(a.Name, b.Name) })
	}
}
