package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	perNamespace = 1000
	perBatch     = 5000
)

// object returns the i-th object. They alternate between a ServiceEntry with six endpoints and
// a VirtualService with five routes, each of about a KiB. Another round gives other content of
// the same size.
func object(i, round int) *config.Config {
	service := i / 2
	meta := config.Meta{
		Name: fmt.Sprintf("service-%06d", service), Namespace: fmt.Sprintf("team-%03d", service/perNamespace),
		Labels:      map[string]string{"app": fmt.Sprintf("service-%06d", service), "team": "payments", "tier": "backend"},
		Annotations: map[string]string{"example.com/owner": "payments-oncall@example.com"},
	}
	if i%2 == 0 {
		meta.GroupVersionKind = schema.ServiceEntry
		return &config.Config{Meta: meta, Spec: serviceEntry(service, round)}
	}
	meta.GroupVersionKind = schema.VirtualService
	return &config.Config{Meta: meta, Spec: virtualService(service, round)}
}

func host(service int) string {
	return fmt.Sprintf("service-%06d.team-%03d.mesh.example.com", service, service/perNamespace)
}

func serviceEntry(service, round int) *networking.ServiceEntry {
	spec := &networking.ServiceEntry{
		Hosts:     []string{host(service)},
		Addresses: []string{fmt.Sprintf("240.%d.%d.%d", service>>16, service>>8&255, service&255)},
		Ports: []*networking.ServicePort{
			{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080},
			{Number: 443, Name: "https", Protocol: "HTTPS", TargetPort: 8443},
			{Number: 9090, Name: "grpc-metrics", Protocol: "GRPC"},
		},
		Location:        networking.ServiceEntry_MESH_INTERNAL,
		Resolution:      networking.ServiceEntry_STATIC,
		SubjectAltNames: []string{fmt.Sprintf("spiffe://cluster.local/ns/team-%03d/sa/service-%06d", service/perNamespace, service)},
	}
	for replica := range 6 {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
			Address:        fmt.Sprintf("10.%d.%d.%d", replica, service>>8&255, service&255),
			Labels:         map[string]string{"version": fmt.Sprintf("v%d", replica%3), "topology": "zone-" + string(rune('a'+replica%3))},
			Locality:       "eu-central-1/eu-central-1" + string(rune('a'+replica%3)),
			Weight:         uint32(10 + round%50),
			ServiceAccount: fmt.Sprintf("service-%06d", service),
		})
	}
	return spec
}

func virtualService(service, round int) *networking.VirtualService {
	spec := &networking.VirtualService{
		Hosts:    []string{host(service), fmt.Sprintf("service-%06d.example.com", service)},
		Gateways: []string{"mesh", "ingress/public"},
	}
	stable := int32(50 + round%50)
	for _, path := range []string{"/api/v1/orders", "/api/v1/customers", "/api/v2/orders", "/api/v2/customers", "/"} {
		spec.Http = append(spec.Http, &networking.HTTPRoute{
			Name: "route" + path,
			Match: []*networking.HTTPMatchRequest{{
				Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: path}},
			}},
			Route: []*networking.HTTPRouteDestination{
				{Destination: destination(service, "stable"), Weight: stable},
				{Destination: destination(service, "canary"), Weight: 100 - stable},
			},
			Timeout: durationpb.New(15e9),
			Retries: &networking.HTTPRetry{Attempts: 3, PerTryTimeout: durationpb.New(2e9), RetryOn: "5xx,reset,connect-failure"},
		})
	}
	return spec
}

func destination(service int, subset string) *networking.Destination {
	return &networking.Destination{Host: host(service), Subset: subset, Port: &networking.PortSelector{Number: 80}}
}

// fill stores the objects in [from, to).
func fill(ctx context.Context, s *etcd.Store, from, to int) error {
	for ; from < to; from += perBatch {
		var ops []storage.Op
		for i := from; i < min(to, from+perBatch); i++ {
			ops = append(ops, storage.Op{Verb: storage.Create, Config: object(i, 0)})
		}
		if _, _, err := s.Apply(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}
