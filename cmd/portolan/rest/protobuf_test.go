package rest_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clientrest "k8s.io/client-go/rest"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// inProtobuf returns client-go's client for the core group that sends protobuf, and reads
// what accept says.
func inProtobuf(t *testing.T, s *resttest.Server, accept string) *clientrest.RESTClient {
	t.Helper()
	c, err := clientrest.RESTClientFor(&clientrest.Config{
		Host: s.URL, Transport: s.HTTP.Transport, APIPath: "/api",
		ContentConfig: clientrest.ContentConfig{
			GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
			ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: accept,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSecretsInProtobuf: a client of Kubernetes makes, reads and deletes secrets in protobuf,
// with answers in JSON, and in protobuf if it accepts nothing else.
func TestSecretsInProtobuf(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for name, accept := range map[string]string{
		"json": "application/vnd.kubernetes.protobuf,application/json", "binary": "application/vnd.kubernetes.protobuf",
	} {
		c := inProtobuf(t, s, accept)
		secrets := func(r *clientrest.Request) *clientrest.Request { return r.Namespace("shop").Resource("secrets") }
		made := &corev1.Secret{}
		sent := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}, Type: "Opaque", Data: map[string][]byte{"word": []byte("swordfish")}}
		if err := secrets(c.Post()).Body(sent).Do(t.Context()).Into(made); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if made.Name != name || made.Type != "Opaque" || made.UID == "" || made.Labels["app"] != "web" {
			t.Errorf("%s: made %+v", name, made)
		}
		var list corev1.SecretList
		result := secrets(c.Get()).Do(t.Context())
		media := ""
		if err := result.ContentType(&media).Into(&list); err != nil || len(list.Items) != 1 || list.Items[0].UID != made.UID || list.ResourceVersion == "" {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		if want := map[string]string{"json": "application/json", "binary": "application/vnd.kubernetes.protobuf"}[name]; media != want {
			t.Errorf("%s: answered in %s", name, media)
		}
		wrong := "not-" + made.UID
		err := secrets(c.Delete()).Name(name).Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}).Do(t.Context()).Error()
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: the options of a deletion were not read: %v", name, err)
		}
		if err := secrets(c.Delete()).Name(name).Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}).Do(t.Context()).Error(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBodiesInProtobufThatAreRefused(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	inProtobuf := func(r *http.Request) { r.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf") }
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{shopEntries, "k8s\x00", 415, "accepted media types include: application/json, application/yaml"},
		{shopSecrets, "not protobuf", 400, "in protobuf cannot be read"},
		{shopSecrets, "k8s\x00\xff", 400, "in protobuf cannot be read"},
		{shopSecrets, "k8s\x00" + strings.Repeat("x", 4<<20), 413, "send JSON"},
	} {
		if a := s.Do(t, "POST", c.path, c.body, inProtobuf); a.Code != c.code || !strings.Contains(a.Body, c.want) {
			t.Errorf("%s: %d %s", c.path, a.Code, a.Body)
		}
	}
}

// TestSecretsAreSelectedByType: lists and watches of secrets select by the field type, and
// those of no other kind.
func TestSecretsAreSelectedByType(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	w := follow(t, s, shopSecrets+"?watch=1&fieldSelector=type%3DOpaque")
	for _, of := range []struct{ name, kind string }{{"a", "Opaque"}, {"b", "example.com/other"}} {
		if a := s.Do(t, "POST", shopSecrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+of.name+`","namespace":"shop"},"type":"`+of.kind+`","stringData":{"k":"v"}}`); a.Code != 201 {
			t.Fatal(a.Body)
		}
	}
	if got, _ := w.next(); !strings.HasPrefix(got, "ADDED a@") {
		t.Error(got)
	}
	for query, want := range map[string]string{
		"type%3DOpaque": "shop/a", "type!%3DOpaque": "shop/b", "type%3D%3Dexample.com/other,metadata.name%3Db": "shop/b", "metadata.name!%3Da,metadata.namespace%3Dshop": "shop/b",
	} {
		if got := parse[list](t, s.Do(t, "GET", "/api/v1/secrets?fieldSelector="+query, "").Body); names(got) != want {
			t.Errorf("%s: %s, want %s", query, names(got), want)
		}
	}
	for _, query := range []string{"?fieldSelector=type%3DOpaque", "?watch=1&fieldSelector=spec.hosts%3Da"} {
		if a := s.Do(t, "GET", shopEntries+query, ""); a.Code != 400 || !strings.Contains(a.Body, "select by metadata.name or metadata.namespace") {
			t.Errorf("%s: %d %s", query, a.Code, a.Body)
		}
	}
}
