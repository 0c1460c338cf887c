package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var entries = client.Resource(schema.Pilot().Named("serviceentry"))

func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, call.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func entry(name string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Name: name, Namespace: "shop", Labels: map[string]string{"app": name}},
		Spec: &networking.ServiceEntry{
			Hosts: []string{name + ".shop"}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		},
	}
}

func put(t *testing.T, object *config.Config) batch.Operation {
	t.Helper()
	operation, err := batch.Write(batch.Apply, object)
	if err != nil {
		t.Fatal(err)
	}
	return operation
}

func TestApplyReadDelete(t *testing.T) {
	t.Parallel()
	c := connect(t, resttest.Start(t, 0, nil).URL)
	other := &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.Telemetry, Name: "p", Namespace: "shop"},
		Spec: &telemetry.Telemetry{AccessLogging: []*telemetry.AccessLogging{{}}},
	}
	result, err := c.Apply(t.Context(), batch.New(put(t, entry("a")), put(t, entry("b")), put(t, other)))
	if err != nil {
		t.Fatal(err)
	}
	if result.Results[1].Outcome != "created" || result.Results[1].Name != "b" || len(result.Warnings) == 0 {
		t.Errorf("%+v", result)
	}
	got, err := c.Get(t.Context(), entries, "shop", "a")
	if err != nil || got.GetResourceVersion() != result.Revision || got.GetUID() == "" {
		t.Errorf("%v, %v", got, err)
	}
	for s, want := range map[client.Selection]int{{}: 2, {Labels: "app=b"}: 1, {Fields: "metadata.name=a"}: 1, {Labels: "app=c"}: 0} {
		list, err := c.List(t.Context(), entries, "", s)
		if err != nil || len(list.Items) != want || list.GetResourceVersion() != result.Revision {
			t.Errorf("%+v: %v, %v", s, list, err)
		}
	}
	if _, err := c.Delete(t.Context(), entries, "shop", "a", "1"); !apierrors.IsConflict(err) {
		t.Errorf("delete at another version: %v", err)
	}
	if _, err := c.Delete(t.Context(), entries, "shop", "a", result.Revision); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), entries, "shop", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
	if _, err := c.Apply(t.Context(), batch.New(batch.Remove(entry("b").Key(), ""))); err != nil {
		t.Error(err)
	}
	var version struct{ GitVersion string }
	if err := c.JSON(t.Context(), "/version?x=y", &version); err != nil || version.GitVersion != "v1.2.3" {
		t.Errorf("%+v, %v", version, err)
	}
}

func TestReadingThePast(t *testing.T) {
	t.Parallel()
	c := connect(t, resttest.Start(t, 1, nil).URL)
	changed := entry("a")
	changed.Labels = nil
	for _, operation := range []batch.Operation{put(t, entry("a")), put(t, changed), batch.Remove(changed.Key(), "")} {
		b := batch.New(operation)
		b.Message = "why " + string(operation.Verb)
		if _, err := c.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	then := c.Fresh(client.Freshness{Exact: 2, MinRevision: 99})
	if got, err := then.Get(t.Context(), entries, "shop", "a"); err != nil || got.GetResourceVersion() != "2" || got.GetLabels()["app"] != "a" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := then.Get(t.Context(), entries, "shop", "b"); !apierrors.IsNotFound(err) {
		t.Errorf("what was not there: %v", err)
	}
	if _, err := c.Fresh(client.Freshness{Exact: 99}).Get(t.Context(), entries, "shop", "a"); !apierrors.IsBadRequest(err) {
		t.Errorf("in the future: %v", err)
	}
	page, err := c.Records(t.Context(), record.Query{Kind: "ServiceEntry", Namespace: "shop", Name: "a", Limit: 2})
	if err != nil || len(page.Items) != 2 || page.Items[0].Message != "why delete" || page.Metadata.Continue != "2" {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestFaultsOfABatchComeWithTheirPlaces(t *testing.T) {
	t.Parallel()
	c := connect(t, resttest.Start(t, 0, nil).URL)
	bad := entry("bad")
	bad.Spec.(*networking.ServiceEntry).Hosts = nil
	_, err := c.Apply(t.Context(), batch.New(put(t, entry("a")), put(t, bad)))
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	var at []string
	for _, cause := range status.ErrStatus.Details.Causes {
		if i, field, ok := batch.Index(cause.Field); ok && i == 1 {
			at = append(at, field)
		}
	}
	if !slices.Equal(at, []string{"spec.hosts"}) {
		t.Errorf("faults at %q of %v", at, err)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "one, \"two\""`)
		w.Header().Add("Warning", `299 - "three"`)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	warnings, err := connect(t, server.URL).Delete(t.Context(), entries, "shop", "a", "")
	if err != nil || !slices.Equal(warnings, []string{`one, "two"`, "three"}) {
		t.Errorf("%q, %v", warnings, err)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, err = connect(t, address).Apply(t.Context(), batch.New(put(t, entry("a"))))
	var unreachable *call.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Unknown {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{"http://" + address, "--server", "PORTOLAN_SERVER", "connection refused"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("says nothing of %s: %v", word, err)
		}
	}
}

func TestConnectionLostMidway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	c := connect(t, server.URL)
	_, err := c.Apply(t.Context(), batch.New(put(t, entry("a"))))
	var unreachable *call.UnreachableError
	if !errors.As(err, &unreachable) || !unreachable.Unknown || !strings.Contains(err.Error(), "may or may not") {
		t.Errorf("write: %v", err)
	}
	if _, err = c.Get(t.Context(), entries, "shop", "a"); !errors.As(err, &unreachable) || unreachable.Unknown {
		t.Errorf("read: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = c.Get(ctx, entries, "shop", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

func TestAnswerOfAnotherProgram(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := connect(t, server.URL).Get(t.Context(), entries, "shop", "a")
	var unreachable *call.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "404 Not Found") || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("%v", err)
	}
}

func TestServerURL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"127.0.0.1:15080": "http://127.0.0.1:15080", "https://x/": "https://x", "http://x/mesh/": "http://x/mesh",
		"": "", "ftp://x": "", "http://": "", "http://[": "",
	} {
		c, err := client.New(given, call.Options{})
		if (err != nil) != (want == "") || (err == nil && c.Server() != want) {
			t.Errorf("%q: %v, %v", given, c, err)
		}
	}
}

// TestACutConnectionOverTLS: the server may have refused a certificate, and the error
// says so.
func TestACutConnectionOverTLS(t *testing.T) {
	for _, cause := range []error{syscall.EPIPE, syscall.ECONNRESET} {
		transport := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			one, other := net.Pipe()
			_ = other.Close()
			return cutConn{one, cause}, nil
		}}
		c, err := client.New("https://mesh.example", call.Options{HTTP: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Post(t.Context(), "/", struct{}{}, &struct{}{})
		var unreachable *call.UnreachableError
		if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "the certificate of --cert may have expired") || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
		c.Close()
	}
}

// cutConn is a connection that the other end has closed.
type cutConn struct {
	net.Conn
	err error
}

func (c cutConn) Write([]byte) (int, error) { return 0, c.err }

func (c cutConn) Read([]byte) (int, error) { return 0, c.err }
