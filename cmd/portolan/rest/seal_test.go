package rest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

const shopSecrets = "/api/v1/namespaces/shop/secrets"

// TestNoAnswerHasTheDataOfASecret: a secret is stored sealed, and no answer has its
// data, sealed or not.
func TestNoAnswerHasTheDataOfASecret(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const word = "swordfish-of-the-deep"
	inBase64 := base64.StdEncoding.EncodeToString([]byte(word))
	body := func(data string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","namespace":"shop"},` + data + `}`
	}
	data, text := body(`"data":{"key":"`+inBase64+`"}`), body(`"stringData":{"key":"`+word+`"}`)
	var answers []resttest.Answer
	do := func(code int, method, path, body string) resttest.Answer {
		t.Helper()
		a := s.Do(t, method, path, body)
		if a.Code != code {
			t.Errorf("%s %s: %d %s", method, path, a.Code, a.Body)
		}
		answers = append(answers, a)
		return a
	}
	do(201, "POST", shopSecrets+"?dryRun=All", data)
	created := do(201, "POST", shopSecrets, data)
	do(409, "POST", shopSecrets, data)
	if again := do(200, "PUT", shopSecrets+"/door", text); again.Body != created.Body {
		t.Errorf("the same data in another form changed it: %s, was %s", again.Body, created.Body)
	}
	changed := do(200, "PUT", shopSecrets+"/door", strings.Replace(text, word, word+"2", 1))
	for _, path := range []string{shopSecrets, shopSecrets + "/door", "/apis/portolan.io/v1/records?objects=true", shopSecrets + "?limit=1"} {
		do(200, "GET", path, "")
	}
	for _, verb := range []string{"apply", "update"} {
		do(200, "POST", "/apis/portolan.io/v1/batches", batchOf(write(verb, data)))
		do(200, "POST", "/apis/portolan.io/v1/batches?dryRun=All&preview=bodies", batchOf(write(verb, text)))
	}
	do(400, "PUT", shopSecrets+"/door", strings.Replace(data, inBase64, inBase64+"%", 1))
	do(422, "PUT", shopSecrets+"/door", changed.Body) // its data was replaced meanwhile
	do(400, "PUT", shopSecrets+"/door", body(`"stringData":{"key":{"a":"`+word+`"}}`))
	do(422, "PUT", shopSecrets+"/door", body(`"stringData":{"b/c":"`+word+`"}`))
	for _, a := range answers {
		for _, bad := range []string{word, inBase64, `"box"`, inBase64[:12]} {
			if strings.Contains(a.Body, bad) || strings.Contains(strings.Join(a.Header.Values("Warning"), " "), bad) {
				t.Errorf("an answer has %s: %s", bad, a.Body)
			}
		}
	}
	stored, err := s.Store.Get(t.Context(), schema.Secret, "door", "shop")
	if err != nil || stored.Spec == nil {
		t.Fatalf("%v, %v", stored, err)
	}
	do(200, "DELETE", shopSecrets+"/door", "")
}

// TestADocumentOfASecretKeepsItsData: the output of get may be changed and applied.
func TestADocumentOfASecretKeepsItsData(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	s.Do(t, "POST", shopSecrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door"},"stringData":{"key":"x"}}`)
	before := s.Do(t, "GET", shopSecrets+"/door", "")
	a := s.Do(t, "PUT", shopSecrets+"/door", strings.Replace(before.Body, `"name":"door"`, `"name":"door","labels":{"a":"b"}`, 1))
	if a.Code != 200 || !strings.Contains(a.Body, `"labels":{"a":"b"}`) || !strings.Contains(a.Body, `"entries":[{"name":"key","bytes":1}]`) {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// entryAdvisor is an advisor that reports which entries of secrets it sees, and whether it sees
// data.
type entryAdvisor struct{ count }

func (entryAdvisor) Advise(ops []storage.Op) [][]finding.Advice {
	out := make([][]finding.Advice, len(ops))
	for i, op := range ops {
		spec := op.Config.Spec.(*secret.Spec)
		out[i] = []finding.Advice{{Text: fmt.Sprintf("has key %v, in the clear %v", spec.Sealed != nil && len(spec.Sealed.Entries) == 1, spec.InClear())}}
	}
	return out
}

// TestAdviceIsAboutSealedSecrets: an advisor sees a secret in its stored form, even if
// another is replaced or nothing is written.
func TestAdviceIsAboutSealedSecrets(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = entryAdvisor{} })
	const path, batches = shopSecrets + "/door", "/apis/portolan.io/v1/batches"
	body := func(data string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","namespace":"shop"},"stringData":{"key":"` + data + `"}}`
	}
	for _, do := range []struct{ method, path, body string }{
		{"POST", shopSecrets, body("one")},
		{"PUT", path + "?dryRun=All", body("two")},
		{"PUT", path, body("two")},
		{"POST", batches, batchOf(write("apply", body("three")))},
		{"POST", batches + "?dryRun=All", batchOf(write("apply", body("four")))},
	} {
		a := s.Do(t, do.method, do.path, do.body)
		if told := a.Body + strings.Join(a.Header.Values("Warning"), " "); a.Code >= 300 || !strings.Contains(told, "has key true, in the clear false") {
			t.Errorf("%s %s: %d %s", do.method, do.path, a.Code, told)
		}
	}
}

func TestWithoutASealer(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Sealer = nil })
	const body = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","namespace":"shop"},"stringData":{"key":"x"}}`
	if a := s.Do(t, "POST", shopSecrets, body); a.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", "/apis/portolan.io/v1/batches", batchOf(write("apply", body))); a.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// TestPatchesOfSecrets: a patch of one entry keeps the others, one of a label keeps the data as it
// is, and no answer has the data.
func TestPatchesOfSecrets(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	if got := s.Do(t, "POST", shopSecrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door","namespace":"shop"},"data":{"a":"YQ==","b":"Yg=="}}`); got.Code != 201 {
		t.Fatal(got)
	}
	data := func() map[string][]byte {
		t.Helper()
		stored, err := s.Store.Get(t.Context(), schema.Secret, "door", "shop")
		if err != nil {
			t.Fatal(err)
		}
		open, err := s.Options.Sealer.(rest.Unsealer).Unseal(stored)
		if err != nil {
			t.Fatal(err)
		}
		return open.Spec.(*secret.Spec).Data
	}
	content := func() string {
		stored, _ := s.Store.Get(t.Context(), schema.Secret, "door", "shop")
		return stored.Spec.(*secret.Spec).Sealed.Content
	}
	first := content()
	for _, tc := range []struct {
		media, body string
		want        map[string]string
	}{
		{mergePatch, `{"metadata":{"labels":{"x":"y"}}}`, map[string]string{"a": "a", "b": "b"}},
		{strategicPatch, `{"metadata":{"annotations":{"x":"y"}}}`, map[string]string{"a": "a", "b": "b"}},
		{strategicPatch, `{"stringData":{"c":"c"}}`, map[string]string{"a": "a", "b": "b", "c": "c"}},
		{mergePatch, `{"data":{"a":null}}`, map[string]string{"b": "b", "c": "c"}},
		{jsonPatch, `[{"op":"add","path":"/data/d","value":"ZA=="}]`, map[string]string{"b": "b", "c": "c", "d": "d"}},
		{applyPatch, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door"},"data":{"e":"ZQ=="}}`, map[string]string{"b": "b", "c": "c", "d": "d", "e": "e"}},
		{applyPatch, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door"},"data":{"f":"Zg=="}}`, map[string]string{"b": "b", "c": "c", "d": "d", "f": "f"}},
	} {
		got := s.Do(t, "PATCH", shopSecrets+"/door?fieldManager=x", tc.body, as(tc.media))
		if got.Code != 200 || strings.Contains(got.Body, "Yg==") || strings.Contains(got.Body, `"box"`) {
			t.Errorf("%s: %d %s", tc.body, got.Code, got.Body)
		}
		now := data()
		for name, value := range tc.want {
			if string(now[name]) != value {
				t.Errorf("%s: entry %s is %q", tc.body, name, now[name])
			}
		}
		if len(now) != len(tc.want) {
			t.Errorf("%s: there are %d entries", tc.body, len(now))
		}
		if len(tc.want) == 2 && tc.want["a"] != "" && content() != first {
			t.Errorf("%s: the data was sealed anew", tc.body)
		}
	}
}
