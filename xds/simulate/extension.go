package simulate

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// configured is a filter whose configuration stands in the listener or is a resource.
type configured interface {
	GetName() string
	GetTypedConfig() *anypb.Any
	GetConfigDiscovery() *corev3.ExtensionConfigSource
}

// configOf returns the configuration of a filter: that in the listener, or the resource with
// the filter's name, or, while that is missing, the default.
func (p *Proxy) configOf(f configured) (*anypb.Any, error) {
	source := f.GetConfigDiscovery()
	if source == nil {
		return f.GetTypedConfig(), nil
	}
	config := source.GetDefaultConfig()
	if e := p.extensions[f.GetName()]; e != nil {
		config = e.GetTypedConfig()
	}
	switch {
	case config == nil:
		return nil, fmt.Errorf("%w %s", ErrNoExtension, f.GetName())
	case !slices.Contains(source.GetTypeUrls(), config.GetTypeUrl()):
		return nil, fmt.Errorf("the configuration of filter %s is a %s, and the listener takes %v", f.GetName(), config.GetTypeUrl(), source.GetTypeUrls())
	}
	return config, nil
}

// Extension returns the configuration with a name, nil for none.
func (p *Proxy) Extension(name string) *corev3.TypedExtensionConfig { return p.extensions[name] }
