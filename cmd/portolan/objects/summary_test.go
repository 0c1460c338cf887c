package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	object := func(spec string) []byte { return []byte(`{"metadata":{"name":"a"},"spec":` + spec + `}`) }
	const route = `{"http":[{"route":[{"weight":90},{"weight":10}]}]}`
	tests := []struct{ name, before, after, want string }{
		{"one field", route, `{"http":[{"route":[{"weight":50},{"weight":10}]}]}`, "http[0].route[0].weight 90 -> 50"},
		{"more", route, `{"http":[{"route":[{"weight":50},{"weight":50}]}]}`, "http[0].route[0].weight 90 -> 50 (+1 more)"},
		{"a field more", `{}`, `{"http":{"timeout":"5s"}}`, "+http"},
		{"a value more", `{"http":{}}`, `{"http":{"timeout":"5s"}}`, "+http.timeout 5s"},
		{"a value less", `{"http":{"timeout":"5s"}}`, `{"http":{}}`, "-http.timeout"},
		{"an element in front", `{"hosts":["b","c"]}`, `{"hosts":["a","b","c"]}`, "+hosts[0] a"},
		{"an element less", `{"hosts":["a","b","c"]}`, `{"hosts":["a","c"]}`, "-hosts[1]"},
		{"elements in the middle", `{"hosts":["a","b","c"]}`, `{"hosts":["a","x","y","c"]}`, "hosts[1] b -> x (+1 more)"},
		{"an element of many", `{"hosts":["a","a","a"]}`, `{"hosts":["a","a"]}`, "-hosts[2]"},
		{"another type", `{"tls":{"mode":"SIMPLE"}}`, `{"tls":true}`, "tls changed"},
		{"an empty text", `{"host":""}`, `{"host":"a"}`, `host "" -> a`},
		{"a long text", `{"host":"a"}`, `{"host":"` + strings.Repeat("é", 50) + `"}`, "host a -> " + strings.Repeat("é", 37) + "..."},
		{"what a terminal acts on", `{"host":"a"}`, `{"host":"\u001b[2J"}`, "host a ->  [2J"},
		{"nothing", `{}`, `{}`, "configured"},
	}
	for _, test := range tests {
		change := record.Change{Outcome: "configured", Before: object(test.before), After: object(test.after)}
		clitest.Same(t, test.name, summary(change), test.want)
	}
	labelled := []byte(`{"metadata":{"labels":{"app.kubernetes.io/name":"x"}},"spec":{}}`)
	relabelled := []byte(`{"metadata":{"labels":{"app.kubernetes.io/name":"y"}},"spec":{}}`)
	clitest.Same(t, "a label", summary(record.Change{Outcome: "configured", Before: labelled, After: relabelled}),
		"metadata.labels[app.kubernetes.io/name] x -> y")
	clitest.Same(t, "what is not known", summary(record.Change{Outcome: "configured", Before: object("{}"), After: []byte(`{"metadata":{"name":"a"}}`)}),
		"configured, what is not known any more")
	box := func(words string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Box","metadata":{"name":"a","uid":"u"}` + words + `,"status":{"x":1}}`)
	}
	clitest.Same(t, "fields at the top level", summary(record.Change{Outcome: "configured", Before: box(`,"data":{"a":"1"}`), After: box(`,"data":{"a":"2"},"type":"x"`)}),
		"data.a 1 -> 2 (+1 more)")
	clitest.Same(t, "all fields at the top level go", summary(record.Change{Outcome: "configured", Before: box(`,"type":"x"`), After: box("")}), "-type")
	clitest.Same(t, "a deletion", summary(record.Change{Outcome: "deleted", Before: object("{}")}), "deleted")
}
