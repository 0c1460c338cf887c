package envoy

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Headers are changes to the headers of requests and responses. Setting or adding "host"
// or ":authority" replaces the host of a request. Other headers that begin with a colon
// cannot be changed and are ignored.
type Headers struct{ Request, Response HeaderOps }

// HeaderOps change headers: Set replaces or adds a value, Add adds another value, Remove
// removes the header. Set comes first; changes are in the order of names.
type HeaderOps struct {
	Set, Add map[string]string
	Remove   []string
}

const hostHeader, authorityHeader = "host", ":authority"

// host returns the new host of a request, empty if it does not change.
func (h Headers) host() string {
	for _, values := range []map[string]string{h.Request.Set, h.Request.Add} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if isHost(name) {
				return values[name]
			}
		}
	}
	return ""
}

func isHost(name string) bool {
	return strings.EqualFold(name, hostHeader) || strings.EqualFold(name, authorityHeader)
}

func (o HeaderOps) options() []*corev3.HeaderValueOption {
	return append(
		headerOptions(o.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD),
		headerOptions(o.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)...)
}

func headerOptions(values map[string]string, action corev3.HeaderValueOption_HeaderAppendAction) []*corev3.HeaderValueOption {
	var out []*corev3.HeaderValueOption
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if isHost(name) || strings.HasPrefix(name, ":") {
			continue
		}
		out = append(out, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, Value: values[name]},
			AppendAction: action,
		})
	}
	return out
}
