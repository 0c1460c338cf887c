package cluster

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestLacking: a refused call is told as the right that the account lacks, any other error as it is.
func TestLacking(t *testing.T) {
	t.Parallel()
	const page = "docs/tasks/read-objects-of-a-cluster.md"
	entries := schema.GroupResource{Group: "networking.istio.io", Resource: "serviceentries"}
	refused := func(why string) error { return apierrors.NewForbidden(entries, "web", errors.New(why)) }
	for _, test := range []struct {
		by   User
		err  error
		want string
	}{
		{User{Page: page}, refused(`User "system:serviceaccount:mesh:portolan" cannot patch resource`),
			"the account system:serviceaccount:mesh:portolan may not patch serviceentries.networking.istio.io/status in all namespaces: grant it the verb patch (see " + page + ")"},
		{User{}, refused("no"), "the account may not patch serviceentries.networking.istio.io/status in all namespaces: grant it the verb patch"},
		{User{Page: page}, errors.New("away"), "away"},
	} {
		got := (&Cluster{by: test.by}).Lacking("patch", entries.String()+"/status", test.err)
		if got.Error() != test.want || errors.Is(got, ErrDenied) != apierrors.IsForbidden(test.err) {
			t.Errorf("%v, want %s", got, test.want)
		}
	}
}
