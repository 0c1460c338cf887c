package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
)

// TestKeysThatAreSetTwice: every repeated key is a fault at its place, whatever its escapes and
// however many keys the mapping has.
func TestKeysThatAreSetTwice(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf(`"k%d": {"x":1}`, i))
	}
	for labels, want := range map[string][]string{
		`{"a":"1","b":"2"}`:                    nil,
		`{"a\"}":"1","a\"":"2","b" : "{,\"" }`: nil,
		`{"ab":"1", "a\u0062":"2"}`:            {"metadata.labels.ab"},
		`{"a\\":"1","a\\":"\\","a":"2"}`:       {`metadata.labels.a\`},
		`{ "a" : [ -1.5e3 , true,null , {"b":[],"c":{},"b":1} ], "d":{"e":"","e":""} }`: {"metadata.labels.a[3].b", "metadata.labels.d.e"},
		`{"a":1,"a":{"b":1,"b":2},"a":3}`:                                               {"metadata.labels.a", "metadata.labels.a.b", "metadata.labels.a"},
		`{` + strings.Join(many, ",") + `}`:                                             nil,
		`{` + strings.Join(append(many, `"k3":1`, `"k39":1`, `"k15":{"y":1,"y":1}`), ",") + `}`: {
			"metadata.labels.k3", "metadata.labels.k39", "metadata.labels.k15", "metadata.labels.k15.y",
		},
	} {
		_, err := config.FromJSON([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"a","labels":`+labels+`}}`), resolve)
		var got []string
		for _, line := range errorLines(t, err) {
			if rest, ok := strings.CutSuffix(line, ": is set twice"); ok {
				got = append(got, strings.TrimPrefix(rest, "gateway/a: "))
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", labels, d)
		}
	}
}

// TestSoundKeysCostNothing: the search for repeated keys makes no copy of a key.
func TestSoundKeysCostNothing(t *testing.T) {
	read := func(endpoints int) float64 {
		text := `{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"a","managedFields":[` +
			strings.Repeat(`{"address":"1.2.3.4","labels":{"app":"a","version":"v1"},"weight":1},`, endpoints) + `1]}}`
		return testing.AllocsPerRun(10, func() { _, _ = config.FromJSON([]byte(text), resolve) })
	}
	if few, many := read(1), read(100); many > few+10 {
		t.Errorf("%v allocations for 100 mappings that nothing else reads, and %v for one", many, few)
	}
}
