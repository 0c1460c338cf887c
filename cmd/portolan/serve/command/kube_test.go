package command

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// logged is a log of which a test awaits a line.
type logged struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // holds a token after a write
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var readyLine = regexp.MustCompile(`msg=ready api=(\S+)`)

// serving runs serve on an etcd of its own until the test ends, and returns the address of its API.
func serving(t *testing.T, args ...string) string {
	t.Helper()
	log := &logged{written: make(chan struct{}, 1)}
	none := func() string { return "" }
	c := New(Console{Stderr: log, Version: "v0", Bearer: func() (string, error) { return "", nil }, CA: none, Agent: none})
	c.SetArgs(append([]string{"--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--etcd-endpoints", etcdtest.Listen(t)}, args...))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	for limit := time.After(30 * time.Second); ; {
		if found := readyLine.FindStringSubmatch(log.String()); found != nil {
			return found[1]
		}
		select {
		case <-log.written:
		case err := <-ended:
			ended <- err
			t.Fatalf("the server has ended: %v\n%s", err, log)
		case <-limit:
			t.Fatalf("the server is not ready:\n%s", log)
		}
	}
}

// endpoints returns the addresses of the endpoints of a host.
func endpoints(t *testing.T, api, host string) (out []string) {
	t.Helper()
	answer, err := http.Get(api + admin.ServicesPath + "?host=" + host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var list admin.ServiceList
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for _, service := range list.Items {
		for _, e := range service.Endpoints {
			out = append(out, e.Address)
		}
	}
	slices.Sort(out)
	return out
}

// TestWhoSelectsWhose runs serve with a cluster: its flags say whether Services select WorkloadEntries, and
// whether ServiceEntries select pods.
func TestWhoSelectsWhose(t *testing.T) {
	t.Parallel()
	const service, entry = "web.shop.svc.cluster.local", "web.test"
	pod, machine := "10.0.0.1", "10.0.0.9"
	both := []string{pod, machine}
	for name, c := range map[string]struct {
		flags        []string
		awaited      string // selects all, and so shows that the server knows all
		other        string
		wantOfOthers []string
	}{
		"both":                  {nil, service, entry, both},
		"Services no entries":   {[]string{"--services-select-workload-entries=false"}, entry, service, []string{pod}},
		"ServiceEntries no pod": {[]string{"--service-entries-select-pods=false"}, service, entry, []string{machine}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kubetest.New(t)
			running := kubetest.NewPod("shop", "web-1", pod, map[string]string{"app": "web"})
			cluster.Put(kubetest.NewService("shop", "web", nil), running, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(running)))
			api := serving(t, append(c.flags, "--services-kube", "east="+kubetest.Kubeconfig(t, "east", cluster.URL))...)
			for kind, object := range map[string]string{
				"workloadentries": `"kind": "WorkloadEntry", "metadata": {"name": "vm-1"}, "spec": {"address": "` + machine + `", "labels": {"app": "web"}}`,
				"serviceentries": `"kind": "ServiceEntry", "metadata": {"name": "web"}, "spec": {"hosts": ["` + entry + `"], "location": "MESH_INTERNAL", "resolution": "STATIC",
					"ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "workloadSelector": {"labels": {"app": "web"}}}`,
			} {
				answer, err := http.Post(api+"/apis/networking.istio.io/v1/namespaces/shop/"+kind, "application/json",
					strings.NewReader(`{"apiVersion": "networking.istio.io/v1", `+object+`}`))
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusCreated {
					t.Fatalf("%s: %s", kind, answer.Status)
				}
			}
			await(t, c.awaited, func() bool { return slices.Equal(endpoints(t, api, c.awaited), both) })
			await(t, c.other, func() bool { return len(endpoints(t, api, c.other)) > 0 })
			if got := endpoints(t, api, c.other); !slices.Equal(got, c.wantOfOthers) {
				t.Errorf("%s has the endpoints %v, want %v", c.other, got, c.wantOfOthers)
			}
		})
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}
