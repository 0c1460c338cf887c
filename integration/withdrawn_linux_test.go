package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAWithdrawnMachineKeepsItsPolicies: a machine that is drained or removed, or whose workload is
// unhealthy, refuses outsiders by the policies that select it, as before. A request that is under way
// there ends as it would have.
func TestAWithdrawnMachineKeepsItsPolicies(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(webGroup, `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/client"]}}]}]
`)
	web, client := l.machine("web"), l.machine("client")
	asked, release := make(chan struct{}, 1), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "web") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-release:
			_, _ = fmt.Fprint(w, "late")
		case <-r.Context().Done():
		}
	})
	service, done := &http.Server{Handler: mux}, make(chan struct{})
	listener := web.listen(":8080")
	go func() { defer close(done); _ = service.Serve(listener) }()
	t.Cleanup(func() { _ = service.Close(); <-done })
	web.join(l.invite("--group", "web"), "--interception", "REDIRECT")
	client.join(l.invite("--service-account", "client"), "--interception", "REDIRECT")
	web.run()
	client.run()
	gets := func(what string, status int) {
		t.Helper()
		eventually(t, what, func() error {
			if got, err := client.get("http://10.9.0.1/", "web.shop.test"); err != nil || got.status != status {
				return fmt.Errorf("%+v, %w", got, err)
			}
			return nil
		})
	}
	served := func(what string) { t.Helper(); gets(what, http.StatusOK) }
	gone := func(what string) { t.Helper(); gets(what, http.StatusServiceUnavailable) }
	served("the first request")
	refused := func(what string) {
		t.Helper()
		for _, port := range []string{"8080", "9081"} { // the port of the service, and one of none
			if got, err := web.outside("http://"+web.ip+":"+port+"/", "web.shop.test"); err == nil || !strings.HasPrefix(err.Error(), "403 ") {
				t.Errorf("%s: an outsider at port %s gets %q, %v", what, port, got, err)
			}
		}
	}
	refused("in use")

	var underWay sync.WaitGroup
	defer underWay.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan string, 1)
	underWay.Go(func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://10.9.0.1/slow", nil)
		if err != nil {
			ended <- err.Error()
			return
		}
		r.Host = "web.shop.test"
		got, err := answer(client.namespace.http(t), r)
		ended <- fmt.Sprint(got.status, " ", got.body, " ", err)
	})
	<-asked
	name := "web-" + web.ip
	l.server.must("", "machine", "drain", name, "-n", "shop", "--reason", "a disk", "--wait")
	gone("it is drained")
	refused("drained")
	select {
	case got := <-ended:
		t.Errorf("the request under way ends: %s", got)
	case <-time.After(7 * time.Second): // Envoy ends what it drains after 5
		close(release)
		if got := <-ended; got != "200 late <nil>" {
			t.Errorf("the request under way ends: %s", got)
		}
	}
	refused("drained for a while")
	l.server.must("", "machine", "drain", name, "-n", "shop", "--end")
	served("it is taken back")
	web.must("drain")
	gone("it has drained itself")
	refused("drained by itself")
	describes := func(what string, drains bool) {
		t.Helper()
		eventually(t, what, func() error {
			o := l.server.try("", "machine", "describe", name, "-n", "shop")
			if o.code != 0 || strings.Contains(o.stdout, "drains itself") != drains {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
	}
	describes("it drains itself", true)
	web.must("resume")
	served("it has taken itself back")
	describes("it drains itself no more", false)
	l.server.must("", "machine", "remove", name, "-n", "shop", "--yes")
	gone("it is removed")
	refused("removed")
}
