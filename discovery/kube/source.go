package kube

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
)

// kinds is the number of kinds that a registry follows, and podKind the number of pods among them.
const kinds, podKind = 4, 1

// followed are the kinds that a registry follows, with the prefixes of the paths of their objects.
var followed = [kinds]struct {
	resource schema.GroupVersionResource
	kind     string
	prefix   string
	fields   string
	strip    func(cluster.Object) object
}{
	{resource: corev1.SchemeGroupVersion.WithResource("nodes"), kind: "Node", prefix: nodePrefix, strip: func(o cluster.Object) object {
		return stripNode(o.(*corev1.Node))
	}},
	{
		resource: corev1.SchemeGroupVersion.WithResource("pods"), kind: "Pod", prefix: podPrefix,
		fields: "status.phase!=Failed,status.phase!=Succeeded", // those that have ended are not even sent
		strip: func(o cluster.Object) object {
			if p := stripPod(o.(*corev1.Pod)); p != nil {
				return p
			}
			return nil
		},
	},
	{resource: corev1.SchemeGroupVersion.WithResource("services"), kind: "Service", prefix: servicePrefix, strip: func(o cluster.Object) object {
		return stripService(o.(*corev1.Service))
	}},
	{resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), kind: "EndpointSlice", prefix: slicePrefix, strip: func(o cluster.Object) object {
		if s := stripSlice(o.(*discoveryv1.EndpointSlice)); s != nil {
			return s
		}
		return nil
	}},
}

// follow tells the registry what the cluster has by a connection, until ctx ends.
func (r *Registry) follow(ctx context.Context, by *cluster.Cluster) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return by.FollowSelection(ctx, r.setSelection) })
	for n := range followed {
		of := &followed[n]
		group.Go(func() error {
			return cluster.Follow(ctx, by, cluster.Following[object]{
				Resource: of.resource, Kind: of.kind, Fields: of.fields,
				Convert: func(o cluster.Object) (object, error) { return of.strip(o), nil },
				Handle:  func(b cluster.Batch[object]) { r.tell(n, b) },
				State:   func(err error) { r.setState(n, err) },
			})
		})
	}
	return group.Wait()
}

// setState takes why a kind is not followed, nil if it is. Nobody waits for a kind that the cluster
// denies or does not have, and for nothing at all without a kubeconfig.
func (r *Registry) setState(kind int, err error) {
	r.inbox.setRefused(kind, errors.Is(err, cluster.ErrDenied) || errors.Is(err, cluster.ErrAbsent))
	if errors.Is(err, cluster.ErrUnusable) {
		r.inbox.endWait()
	}
	r.post()
}

func (r *Registry) tell(kind int, b cluster.Batch[object]) {
	changes := make(map[string]object, len(b.Changes))
	for _, c := range b.Changes {
		if c.Old != nil {
			changes[c.Old.path()] = nil
		}
		if c.New != nil {
			changes[c.New.path()] = c.New
		}
	}
	listed := -1
	if b.Listed {
		listed = kind
	}
	r.told(listed, changes)
}
