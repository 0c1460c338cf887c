package command

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	etcdstore "github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var readyLine = regexp.MustCompile(`msg=ready api=(\S+) xds=(\S+)`)

// serving runs serve on an etcd until the test ends or stop is called, and returns the addresses of its
// API and of its xDS.
func serving(t *testing.T, etcd string, args ...string) (api, xds string, stop func()) {
	t.Helper()
	log := &logtest.Log{}
	none := func() string { return "" }
	c := New(Console{Stderr: log, Version: "v0", Bearer: func() (string, error) { return "", nil }, CA: none, Agent: none})
	c.SetArgs(append([]string{"--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--etcd-endpoints", etcd}, args...))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server has ended: %v\n%s", err, log)
		}
	})
	t.Cleanup(stop)
	found := logtest.Await(t, log, readyLine, ended)
	return found[1], found[2], stop
}

// create creates an object in the namespace shop.
func create(t *testing.T, api, kind, object string) {
	t.Helper()
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
			api, _, _ := serving(t, etcdtest.Listen(t), append(c.flags, "--services-kube", "east="+kubetest.Kubeconfig(t, "east", cluster.URL))...)
			for kind, object := range map[string]string{
				"workloadentries": `"kind": "WorkloadEntry", "metadata": {"name": "vm-1"}, "spec": {"address": "` + machine + `", "labels": {"app": "web"}}`,
				"serviceentries": `"kind": "ServiceEntry", "metadata": {"name": "web"}, "spec": {"hosts": ["` + entry + `"], "location": "MESH_INTERNAL", "resolution": "STATIC",
					"ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "workloadSelector": {"labels": {"app": "web"}}}`,
			} {
				create(t, api, kind, object)
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

// TestSecretsOfAClusterAreNotStored: a gateway uses a secret of a cluster, and a server that stops has saved
// what it knows of the cluster. No value of etcd then has anything of the secret, and none is for it.
func TestSecretsOfAClusterAreNotStored(t *testing.T) {
	t.Parallel()
	pair := secrettest.New(t, time.Hour, "door.shop.test")
	cluster := kubetest.New(t)
	running := kubetest.NewPod("shop", "web-1", "10.0.0.1", map[string]string{"app": "web"})
	cluster.Put(kubetest.NewService("shop", "web", nil), running, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(running)), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "door", UID: "of-door"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
	})
	file, etcd := "east="+kubetest.Kubeconfig(t, "east", cluster.URL), etcdtest.Listen(t)
	api, xds, stop := serving(t, etcd, "--services-kube", file, "--secrets-kube", file+"=shop", "--sealing-key", filepath.Join(t.TempDir(), "sealing.key"))
	create(t, api, "gateways", `"kind": "Gateway", "metadata": {"name": "edge"}, "spec": {"selector": {"app": "edge"}, "servers": [
		{"port": {"number": 8443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"], "tls": {"mode": "SIMPLE", "credentialName": "door"}}]}`)
	const secrets, name = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "kubernetes://door"
	edge := xdstest.Dial(t, xds, xdstest.ClientOptions{Node: xdstest.NewNode("router", "10.0.0.7", "edge", "shop", map[string]string{"app": "edge"}), Variant: protocol.Delta})
	edge.Subscribe(secrets, name)
	edge.Await("the gateway has the key", func(held func(string) map[string]xdstest.Held) bool {
		return bytes.Contains(held(secrets)[name].Body.GetValue(), pair.Key)
	})
	edge.Close()
	stop()

	kept, err := etcdtest.Dial(t, etcd).Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	saved := false
	for _, kv := range kept.Kvs {
		texts := [][]byte{kv.Value}
		if at := bytes.Index(kv.Value, []byte{0x1f, 0x8b}); at >= 0 { // a large record of the history
			if r, err := gzip.NewReader(bytes.NewReader(kv.Value[at:])); err == nil {
				text, _ := io.ReadAll(r)
				texts = append(texts, text)
			}
		}
		if _, items, err := etcdstore.DecodeRegistryBucket(kv); err == nil { // it is compressed
			for key, value := range items {
				saved = saved || strings.Contains(key, "web-1")
				texts = append(texts, []byte(key), value)
			}
		}
		if bytes.Contains(kv.Key, []byte("door")) { // a sealed secret would have it
			t.Errorf("there is a value for the secret: %q", kv.Key)
		}
		for what, trace := range traces(t, pair) {
			if slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(text, trace) }) {
				t.Errorf("%q has %s", kv.Key, what)
			}
		}
	}
	if !saved {
		t.Errorf("what the server knows of the cluster is not among the %d values of etcd", len(kept.Kvs))
	}
}

// traces returns what a value would have that kept a key pair: its documents, as they are and in base64, as
// Kubernetes has them, and the bytes in them.
func traces(t *testing.T, pair secrettest.Pair) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for what, document := range map[string][]byte{"the certificate": pair.Cert, "the key": pair.Key} {
		block, _ := pem.Decode(document)
		if block == nil {
			t.Fatalf("%s is no PEM", what)
		}
		out[what] = bytes.TrimSpace(document)
		out[what+" in base64"] = []byte(base64.StdEncoding.EncodeToString(document))
		out[what+" without armor"] = []byte(base64.StdEncoding.EncodeToString(block.Bytes)[:60]) // a line of the document
		out[what+" in DER"] = block.Bytes
	}
	return out
}
