package verdict

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// NotForGRPC returns the fields of an HTTP route at a path that gRPC clients without a
// proxy do not take.
func NotForGRPC(http *networking.HTTPRoute, path string) []string {
	var out []string
	add := func(m proto.Message, at string, names ...string) {
		for _, name := range setFields(m, names) {
			out = append(out, at+"."+name)
		}
	}
	add(http, path, "redirect", "directResponse", "rewrite", "headers", "mirror", "mirrors", "corsPolicy")
	add(http.GetRetries(), path+".retries", "perTryTimeout", "retryRemoteLocalities", "retryIgnorePreviousHosts")
	for i, d := range http.GetRoute() {
		add(d, fmt.Sprintf("%s.route[%d]", path, i), "headers")
	}
	return out
}

// setFields are those of some fields that a message has, by their names in YAML, in
// order.
func setFields(m proto.Message, names []string) []string {
	var out []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if slices.Contains(names, f.JSONName()) {
			out = append(out, f.JSONName())
		}
		return true
	})
	slices.Sort(out)
	return out
}

// grpcClients tells of fields that gRPC clients do not take, if there are clients that see
// the VirtualService, and one of its hosts is of a service that they may call.
func (j *judge) grpcClients(vs *mesh.VirtualService) {
	var fields []string
	for i, http := range vs.Spec.GetHttp() {
		fields = append(fields, NotForGRPC(http, at("spec.http", i))...)
	}
	if len(fields) == 0 || !slices.Contains(vs.Gateways, mesh.MeshGateway) || !j.callable(vs) {
		return
	}
	for p := range j.known(clientsRow, "").Values() {
		if !vs.ExportTo.VisibleTo(p.Namespace) {
			continue
		}
		for _, field := range fields {
			j.add(Verdict{
				Code: NotForClients, Field: field,
				Message: fmt.Sprintf("gRPC clients without a proxy do not take it, and there are some in namespace %s", p.Namespace),
				Remedy:  "see docs/operations/grpc.md for what they take",
			})
		}
		return
	}
}

// callable says whether a host of a VirtualService is of a service that speaks gRPC.
func (j *judge) callable(vs *mesh.VirtualService) bool {
	for _, h := range vs.Hosts {
		for s := range j.services(h) {
			for _, p := range s.Ports() {
				if p.Protocol == discovery.GRPC {
					return true
				}
			}
		}
	}
	return false
}
