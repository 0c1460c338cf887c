package export

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcp "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Resource returns the resource of an object whose spec is a protobuf message. Its name is
// namespace/name, and its metadata has the version of the object. The annotation
// config.SourceAnnotation names the source of an object that is not the store's. Equal objects
// have equal bytes.
func Resource(object *config.Config) (*resource.Resource, error) {
	spec, ok := object.Spec.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("its spec is a %T and no message", object.Spec)
	}
	body, ok := spec.(*anypb.Any)
	if !ok {
		body = &anypb.Any{}
		if err := anypb.MarshalFrom(body, spec, proto.MarshalOptions{Deterministic: true}); err != nil {
			return nil, err
		}
	}
	metadata := &mcp.Metadata{
		Name: nameOf(object), Version: object.ResourceVersion, Labels: object.Labels, Annotations: annotationsOf(object),
	}
	if !object.CreationTimestamp.IsZero() {
		metadata.CreateTime = timestamppb.New(object.CreationTimestamp)
	}
	return resource.New(metadata.GetName(), &mcp.Resource{Metadata: metadata, Body: body})
}

// annotationsOf returns the annotations of an object, with its source unless that is the store.
func annotationsOf(object *config.Config) map[string]string {
	if object.Source == "" {
		return object.Annotations
	}
	out := map[string]string{config.SourceAnnotation: object.Source}
	for name, value := range object.Annotations {
		if name != config.SourceAnnotation {
			out[name] = value
		}
	}
	return out
}

func nameOf(object *config.Config) string { return object.Namespace + "/" + object.Name }
