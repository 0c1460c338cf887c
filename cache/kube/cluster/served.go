package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Served returns the resources that a cluster serves of some groups, in every version. Every
// account has the right to ask, unless somebody took it away. A cluster that is just starting may
// leave some out, as Absent tells, or refuse, which is an ErrDenied.
func (c *Cluster) Served(ctx context.Context, groups []string) ([]schema.GroupVersionResource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.link.o.Timeout, c.link.late())
	defer cancel()
	all := &metav1.APIGroupList{}
	if err := c.read(ctx, all, "/apis"); err != nil {
		return nil, err
	}
	var out []schema.GroupVersionResource
	for _, group := range all.Groups {
		if !slices.Contains(groups, group.Name) {
			continue
		}
		for _, version := range group.Versions {
			list := &metav1.APIResourceList{}
			if err := c.read(ctx, list, "/apis", group.Name, version.Version); apierrors.IsNotFound(err) {
				continue // it has just gone
			} else if err != nil {
				return nil, err
			}
			for _, r := range list.APIResources {
				out = append(out, schema.GroupVersionResource{Group: group.Name, Version: version.Version, Resource: r.Name})
			}
		}
	}
	return out, nil
}

// Absent says whether the cluster does not have a resource, which is more than that it
// does not list it.
func (c *Cluster) Absent(ctx context.Context, resource schema.GroupVersionResource) bool {
	ctx, cancel := context.WithTimeout(ctx, c.link.o.Timeout)
	defer cancel()
	_, err := c.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	return apierrors.IsNotFound(err)
}

// read reads a document of the API.
func (c *Cluster) read(ctx context.Context, into any, path ...string) error {
	answer := c.REST().Get().AbsPath(path...).Do(ctx)
	text, err := answer.Raw()
	if err != nil {
		err = answer.Error() // has the words of the cluster, such as who was refused
	}
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case apierrors.IsForbidden(err):
		return &reason{ErrDenied, fmt.Sprintf("%s may not get %s, where the cluster lists its resources: the ClusterRole system:discovery gives the right, and every account has it, "+
			"but for a moment after the API server starts: if this lasts, bind the role to the group system:authenticated again", accountOf(userIn(err)), strings.Join(path, "/"))}
	case err != nil:
		return (&target{}).explain("get", err, "")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer to %v is no list: %w", path, err)
	}
	return nil
}
