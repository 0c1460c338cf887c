package kubetest_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage/config"
)

// namespacesOf has an API answer that it has these Namespaces, without labels.
func namespacesOf(api *kubetest.API, names ...string) {
	api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path != "/api/v1/namespaces":
			return false
		case r.URL.Query().Get("sendInitialEvents") != "":
			kubetest.Refuse(w, http.StatusUnprocessableEntity, "Invalid", "no")
			return true
		case kubetest.Verb(r) == "watch":
			return kubetest.Hang(w, r)
		}
		items := ""
		for i, name := range names {
			items += fmt.Sprintf(`%s{"metadata": {"name": %q, "labels": {"name": %[2]q}}}`, []string{"", ","}[min(i, 1)], name)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [%s]}`, items)
		return true
	})
}

// namespace makes a namespace that named selects.
func namespace(t *testing.T, api *kubetest.API, name string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"name":%[1]q}}}`, name)
	if got := api.Do(t, "POST", "/api/v1/namespaces", body); got.Code != http.StatusCreated {
		t.Fatal(got)
	}
}

// named selects the namespace of a name.
func named(t *testing.T, selectors *selection.Selectors, name string) {
	t.Helper()
	if err := selectors.Set([]*meshv1alpha1.LabelSelector{{MatchLabels: map[string]string{"name": name}}}); err != nil {
		t.Fatal(err)
	}
}

// Objects of namespaces that do not count are in no snapshot, and come as soon as the selectors match.
func TestCacheSelects(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	namespacesOf(api, "shop", "other")
	write(t, api, "one", "a.example")
	selectors := selection.NewSelectors()
	r := run(t, api, func(o *kube.Options) {
		connection := options(api)
		connection.Selectors = selectors
		var err error
		if o.Cluster, err = cluster.New(connection); err != nil {
			t.Fatal(err)
		}
		o.Recall = func(context.Context) ([]*config.Config, time.Time, error) {
			return []*config.Config{entry("last")}, time.Unix(3000, 0), nil
		}
	})
	r.await("ServiceEntry last") // what the cluster has waits for the selectors
	if r.Confirmed() {
		t.Error("it is confirmed without selectors")
	}
	named(t, selectors, "other")
	r.await()
	r.until("confirmed", r.Confirmed)
	write(t, api, "two", "b.example")
	named(t, selectors, "shop")
	r.await("ServiceEntry one", "ServiceEntry two")
	named(t, selectors, "missing")
	r.await()
	if err := selectors.Set(nil); err != nil {
		t.Fatal(err)
	}
	r.await("ServiceEntry one", "ServiceEntry two")
}

// What is wrong in namespaces that do not count is no problem.
func TestProblemsThatCount(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	namespacesOf(api, "shop", "other")
	write(t, api, "bad", "refused.example")
	o := options(api)
	o.Selectors = selection.NewSelectors()
	f := follow(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	told := make(chan selection.Selection)
	running.Go(func() {
		_ = f.cluster.FollowSelection(ctx, func(now selection.Selection) {
			select {
			case told <- now:
			case <-ctx.Done():
			}
		})
	})
	named(t, o.Selectors, "other")
	<-told
	f.until(t, "the list is there", f.cluster.Synced)
	if all := f.cluster.Problems(); len(all) > 0 {
		t.Error(all)
	}
	named(t, o.Selectors, "shop")
	<-told
	if all := f.cluster.Problems(); len(all) != 1 || all[0].Object != "serviceentry/shop/bad" {
		t.Error(all)
	}
}
