// Package labels matches workload labels against selectors.
package labels

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Instance holds the labels of a workload, an endpoint or a proxy.
type Instance map[string]string

// SubsetOf says whether every label of i is in o with the same value: whether i
// as a selector selects o. The empty selector selects all.
func (i Instance) SubsetOf(o Instance) bool {
	if len(i) > len(o) {
		return false
	}
	for k, v := range i {
		if w, ok := o[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Equal says whether both hold the same labels.
func (i Instance) Equal(o Instance) bool { return maps.Equal(i, o) }

// String is "k=v,k=v" in the order of the keys.
func (i Instance) String() string {
	parts := make([]string, 0, len(i))
	for _, k := range slices.Sorted(maps.Keys(i)) {
		parts = append(parts, k+"="+i[k])
	}
	return strings.Join(parts, ",")
}

// Parse reads what String wrote: no label contains "," or "=".
func Parse(s string) Instance {
	out := Instance{}
	for part := range strings.SplitSeq(s, ",") {
		if k, value, ok := strings.Cut(part, "="); ok {
			out[k] = value
		}
	}
	return out
}

// TLSMode is the label of a workload that says how its proxy takes connections from other
// workloads of the mesh. (Istio: label.SecurityTlsMode.)
const TLSMode = "security.istio.io/tlsMode"

// The values of the label TLSMode.
const (
	TLSModeIstio    = "istio"    // by mutual TLS of the mesh
	TLSModeDisabled = "disabled" // in plaintext
)

// CheckTLSMode returns an error if the label TLSMode has a value of which nobody knows what it
// means.
func (i Instance) CheckTLSMode() error {
	switch mode := i[TLSMode]; mode {
	case "", TLSModeIstio, TLSModeDisabled:
		return nil
	default:
		return fmt.Errorf("%q is no mode: write %s for mutual TLS of the mesh, or %s for plaintext", mode, TLSModeIstio, TLSModeDisabled)
	}
}
