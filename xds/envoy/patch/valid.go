package patch

import (
	"errors"
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// validWithin returns the first rule of Envoy's API that is broken in an Any within a message. If
// the message is merged, the configuration of itself and of its transport socket is a part of one,
// and may lack what the other part has.
func validWithin(m protoreflect.Message, merged bool) error {
	var err error
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		part := merged && !field.IsList() && !field.IsMap()
		switch {
		case field.IsMap():
			if field.MapValue().Message() == nil {
				return true
			}
			value.Map().Range(func(_ protoreflect.MapKey, entry protoreflect.Value) bool {
				err = validMember(entry.Message(), false)
				return err == nil
			})
		case field.Message() == nil:
		case field.IsList():
			for i := 0; i < value.List().Len() && err == nil; i++ {
				err = validMember(value.List().Get(i).Message(), false)
			}
		default:
			err = validMember(value.Message(), part)
		}
		return err == nil
	})
	return err
}

// validMember is validWithin for a member of a message, which may be an Any itself.
func validMember(m protoreflect.Message, part bool) error {
	packed, ok := m.Interface().(*anypb.Any)
	if !ok {
		if err := untyped(m.Interface()); err != nil && !part {
			return err
		}
		return validWithin(m, part)
	}
	content, err := packed.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("has a %s that cannot be read: %w", packed.GetTypeUrl(), err)
	}
	if !part {
		if err := broken(content); err != nil {
			return err
		}
	}
	return validWithin(content.ProtoReflect(), part)
}

// broken returns the first rule of Envoy's API that a message breaks, and what else Envoy asks of a
// listener, a filter chain or a connection manager. It does not look into Anys.
func broken(m proto.Message) error {
	if err := valid(m); err != nil {
		return err
	}
	switch m := m.(type) {
	case *listenerv3.Listener:
		return brokenListener(m)
	case *listenerv3.FilterChain:
		return misplaced(m.GetFilters(), isLastNetworkFilter)
	case *hcmv3.HttpConnectionManager:
		return misplaced(m.GetHttpFilters(), isRouter)
	}
	return nil
}

func brokenListener(l *listenerv3.Listener) error {
	chains := l.GetFilterChains()
	if l.GetDefaultFilterChain() != nil {
		chains = append(slices.Clip(chains), l.GetDefaultFilterChain())
	}
	if len(chains) == 0 && l.GetApiListener() == nil && l.GetUdpListenerConfig() == nil && l.GetAddress().GetSocketAddress().GetProtocol() == corev3.SocketAddress_TCP {
		return errors.New("leaves the listener without a filter chain: remove the listener")
	}
	for _, chain := range chains {
		if err := misplaced(chain.GetFilters(), isLastNetworkFilter); err != nil {
			return err
		}
	}
	return nil
}

// misplaced says which filter comes after one that must be the last, since it takes all.
func misplaced[F filter](list []F, last func(F) bool) error {
	for i, f := range list {
		if last(f) && i < len(list)-1 {
			return fmt.Errorf("puts the filter %s after %s, which must be the last: insert it before", list[i+1].GetName(), f.GetName())
		}
	}
	return nil
}

// untyped says what a filter lacks that is not merged: Envoy finds filters by the type of their
// configuration.
func untyped(m proto.Message) error {
	var f interface {
		filter
		GetConfigDiscovery() *corev3.ExtensionConfigSource
	}
	switch m := m.(type) {
	case *listenerv3.ListenerFilter:
		f = m
	case *listenerv3.Filter:
		f = m
	case *hcmv3.HttpFilter:
		f = m
	default:
		return nil
	}
	if f.GetTypedConfig() != nil || f.GetConfigDiscovery() != nil {
		return nil
	}
	return fmt.Errorf("has the filter %q without typed_config: Envoy finds a filter by the @type of that", f.GetName())
}
