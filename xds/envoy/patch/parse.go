package patch

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// maxExpression bounds the expression of match.proxy.proxyVersion. (Istio: proxyMatch.)
const maxExpression = 1024

// Parse reads an EnvoyFilter. Unknown fields in values are ignored. A patch that cannot be read has
// an Err and never applies. The spec is kept, and must not be modified afterwards.
func Parse(namespace, name string, created time.Time, spec *networking.EnvoyFilter) *Filter {
	f := &Filter{Namespace: namespace, Name: name, Created: created, Priority: spec.GetPriority()}
	for i, of := range spec.GetConfigPatches() {
		p := parse(of, i)
		p.Filter = f
		f.Patches = append(f.Patches, p)
	}
	return f
}

func parse(of *networking.EnvoyFilter_EnvoyConfigObjectPatch, index int) *Patch {
	p := &Patch{
		Index: index, ApplyTo: of.GetApplyTo(), Operation: of.GetPatch().GetOperation(), Context: of.GetMatch().GetContext(),
		match: of.GetMatch(), class: of.GetPatch().GetFilterClass(),
	}
	if p.match == nil {
		p.match = &networking.EnvoyFilter_EnvoyConfigObjectMatch{}
	}
	p.Operation = p.effective()
	p.value, p.Err = valueOf(of, &decoder{}, index)
	if p.Err == nil {
		p.version, p.Err = expression(p.match.GetProxy().GetProxyVersion())
	}
	return p
}

// effective returns the operation as Istio takes it: what has no order has no place to insert at.
func (p *Patch) effective() networking.EnvoyFilter_Patch_Operation {
	switch p.Operation {
	case networking.EnvoyFilter_Patch_INSERT_AFTER, networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_Patch_INSERT_FIRST:
		switch p.ApplyTo {
		case networking.EnvoyFilter_HTTP_FILTER, networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_HTTP_ROUTE:
		default:
			return networking.EnvoyFilter_Patch_ADD
		}
	}
	return p.Operation
}

// merges says whether the operation merges the value.
func (p *Patch) merges() bool {
	return p.Operation == networking.EnvoyFilter_Patch_MERGE || p.Operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
}

func (p *Patch) merging() merging {
	return merging{replaceLists: p.Operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
}

func expression(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxExpression {
		return nil, fmt.Errorf("match.proxy.proxyVersion has %d characters, %d are allowed", len(text), maxExpression)
	}
	out, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("match.proxy.proxyVersion is no regular expression: %w", err)
	}
	return out, nil
}

// messageOf returns an empty message of the type that the values of patches have, nil for none.
func messageOf(to networking.EnvoyFilter_ApplyTo) proto.Message {
	switch to {
	case networking.EnvoyFilter_LISTENER:
		return &listenerv3.Listener{}
	case networking.EnvoyFilter_FILTER_CHAIN:
		return &listenerv3.FilterChain{}
	case networking.EnvoyFilter_NETWORK_FILTER:
		return &listenerv3.Filter{}
	case networking.EnvoyFilter_HTTP_FILTER:
		return &hcmv3.HttpFilter{}
	case networking.EnvoyFilter_LISTENER_FILTER:
		return &listenerv3.ListenerFilter{}
	case networking.EnvoyFilter_ROUTE_CONFIGURATION:
		return &routev3.RouteConfiguration{}
	case networking.EnvoyFilter_VIRTUAL_HOST:
		return &routev3.VirtualHost{}
	case networking.EnvoyFilter_HTTP_ROUTE:
		return &routev3.Route{}
	case networking.EnvoyFilter_CLUSTER:
		return &clusterv3.Cluster{}
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		return &corev3.TypedExtensionConfig{}
	case networking.EnvoyFilter_BOOTSTRAP:
		return &bootstrapv3.Bootstrap{}
	}
	return nil
}

// valueOf reads the value of a patch; nil for REMOVE. A value that is not merged is a whole object,
// and must keep the rules of Envoy's API.
func valueOf(of *networking.EnvoyFilter_EnvoyConfigObjectPatch, d *decoder, index int) (proto.Message, error) {
	operation := of.GetPatch().GetOperation()
	m := messageOf(of.GetApplyTo())
	switch {
	case m == nil:
		return nil, fmt.Errorf("applyTo %s is unknown", of.GetApplyTo())
	case operation == networking.EnvoyFilter_Patch_INVALID:
		return nil, errors.New("patch.operation is missing")
	case operation == networking.EnvoyFilter_Patch_REMOVE:
		return nil, nil
	case of.GetPatch().GetValue() == nil:
		return nil, fmt.Errorf("patch.value is missing: operation %s needs one", operation)
	}
	path := "configPatches[" + strconv.Itoa(index) + "].patch.value"
	if err := d.decode(m, of.GetPatch().GetValue(), path); err != nil {
		return nil, err
	}
	merged := operation == networking.EnvoyFilter_Patch_MERGE || operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
	if !merged {
		for _, err := range []error{broken(m), untyped(m)} {
			if err != nil {
				return nil, fmt.Errorf("%s %w", path, err)
			}
		}
	}
	if err := validWithin(m.ProtoReflect(), merged); err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return m, nil
}
