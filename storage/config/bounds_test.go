package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// spent returns how many MiB do allocates. No other test may run meanwhile.
func spent(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// bombs are small texts that are expensive to read without bounds.
func bombs() map[string]struct{ text, says string } {
	head := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: b}\nspec:\n"
	filter := `{"apiVersion":"networking.istio.io/v1alpha3","kind":"EnvoyFilter","metadata":{"name":"a","namespace":"b"},"spec":{"configPatches":[{"patch":{"value":`
	entry := `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a","namespace":"b"},"spec":`
	doubling := "a0: &a0 {k: v, l: w}\n"
	for i := range 40 {
		doubling += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	merges := "m0: &m0 {k: " + strings.Repeat("v", 100_000) + "}\nall:\n" + strings.Repeat("- {<<: *m0}\n", 10_000)
	key := strings.Repeat("k", 4_000)
	return map[string]struct{ text, says string }{
		"aliases of a long text":   {"a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n", "its aliases stand for 1000"},
		"aliases that double":      {doubling, "its aliases stand for"},
		"an alias of its own":      {"a: &a [*a]\n", `anchor "a" holds an alias of itself`},
		"merges":                   {merges, "its aliases stand for 100"},
		"many values":              {"a: [" + strings.Repeat("x,", config.MaxValues) + "]\n", "values, and 2097152 are the most"},
		"many documents":           {strings.Repeat("---\nx\n", 40_000), "there are more faults"},
		"deep YAML":                {head + "  hosts: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), "spec.hosts[0][0][0][0][0][0]...: is nested 9002 deep, and 100 is the most"},
		"deeper YAML":              {strings.Repeat("[", 200_000), "exceeded max depth"},
		"deep JSON":                {filter + strings.Repeat(`{"a":`, 3_400) + "1" + strings.Repeat("}", 3_400) + "}}]}}", "envoyfilter/b/a: spec.configPatches[0].patch.value.a.a.a...: is nested 3405 deep"},
		"deeper JSON":              {strings.Repeat("[", 200_000), "exceeded max depth"},
		"deep JSON of long keys":   {filter + strings.Repeat(`{"`+key+`":`, 300) + "1" + strings.Repeat("}", 300) + "}}]}}", ": is nested 305 deep"},
		"values of a wrong type":   {entry + `{"hosts":[1` + strings.Repeat(",1", 60_000) + "]}}", "there are more faults"},
		"unknown fields":           {entry + `{"a":1` + strings.Repeat(`,"`+strings.Repeat("x", 5_000)+`":1`, 100) + "}}", "xxx...: is set twice"},
		"a number":                 {entry + `{"ports":[{"number":` + strings.Repeat("9", 200_000) + "}]}}", "must be a whole number from 0 (uint32), is 999"},
		"an exponent":              {entry + `{"ports":[{"number":1e999999999}]}}`, "must be a whole number from 0 (uint32), is 1e999999999"},
		"a number of YAML":         {head + "  ports: [{number: " + strings.Repeat("9", 200_000) + "}]", "must be"},
		"an infinite one":          {head + "  ports: [{number: .inf}]", "not valid YAML"},
		"keys set twice":           {entry + `{"hosts":[{"a":1` + strings.Repeat(`,"a":1`, 20_000) + "}]}}", "there are more faults"},
		"long keys in a map":       {entry + `{"endpoints":[{"labels":{"` + strings.Repeat("x", 200_000) + `":1}}]}}`, "xxx...]: must be a string"},
		"a list of many faults":    {`{"apiVersion":"v1","kind":"List","items":[1` + strings.Repeat(",1", 40_000) + "]}", "there are more faults"},
		"many unknown of the list": {`{"kind":"List","items":[],"a":1` + unknowns(5_000) + "}", "there are more faults"},
	}
}

func unknowns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"u%d":1`, i)
	}
	return b.String()
}

// TestWhatIsSmallCostsLittle: the memory to read a text is bounded. The largest texts have
// 4 MB; without the bounds some took gigabytes, or hours.
func TestWhatIsSmallCostsLittle(t *testing.T) {
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) {
			var err error
			cost := spent(func() { _, err = config.Decode("f", []byte(bomb.text), resolve) })
			switch {
			case err == nil || !strings.Contains(err.Error(), bomb.says):
				t.Errorf("error is %.300v, want one that says %q", err, bomb.says)
			case len(err.Error()) > 100_000:
				t.Errorf("the error has %d bytes", len(err.Error()))
			case cost > 300:
				t.Errorf("%d kB cost %d MiB", len(bomb.text)>>10, cost)
			}
			if bomb.text[0] == '{' {
				if _, err := config.FromJSON([]byte(bomb.text), resolve); err == nil {
					t.Error("FromJSON takes it")
				}
			}
		})
	}
}

func TestAliasesThatStandForLittleAreTaken(t *testing.T) {
	t.Parallel()
	text := `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: b, labels: &labels {app: x}}
spec:
  hosts: &hosts [a.example.com]
  workloadSelector: {labels: {<<: *labels, tier: web}}
  exportTo: *hosts
`
	documents, err := config.Decode("f", []byte(text), resolve)
	if err != nil {
		t.Fatal(err)
	}
	spec := documents[0].Config.Spec.(*networking.ServiceEntry)
	if spec.ExportTo[0] != "a.example.com" || spec.WorkloadSelector.Labels["app"] != "x" || spec.WorkloadSelector.Labels["tier"] != "web" {
		t.Errorf("%v", spec)
	}
}

// TestCountValuesIsNeverTooLow: for every syntax of values in YAML and JSON.
func TestCountValuesIsNeverTooLow(t *testing.T) {
	t.Parallel()
	for text, values := range map[string]int{
		"": 1, "a": 1, "[]": 1, "[a,b]": 3, "{a: b}": 3, "a:\n- b\n- - c\n  - d\n": 6, "? a\n: b\n": 3, "a: b\nc: d": 5,
		"---\n---\n---\n": 3, `{"a":[1,2],"b":{"c":null}}`: 8, "-": 2, "- ": 2,
	} {
		if got := config.CountValues([]byte(text)); 2*got < values {
			t.Errorf("%q has %d values, counted as %d", text, values, got)
		}
	}
}

func TestCheckNamesTheField(t *testing.T) {
	t.Parallel()
	deep := structpb.NewNullValue()
	for range 3_400 {
		deep = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": deep}})
	}
	patch := func(value *structpb.Value) *networking.EnvoyFilter {
		return &networking.EnvoyFilter{ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{{}, {
			Patch: &networking.EnvoyFilter_Patch{Value: &structpb.Struct{Fields: map[string]*structpb.Value{"key": value}}},
		}}}
	}
	filters := schema.Pilot().Kind(schema.EnvoyFilter).Codec
	if err := filters.Check(patch(structpb.NewStringValue("x"))); err != nil {
		t.Error(err)
	}
	err := filters.Check(patch(deep))
	if err == nil || !strings.HasPrefix(err.Error(), "spec.configPatches[1].patch.value.fields[key]") || !strings.HasSuffix(err.Error(), "...: is nested more than 400 messages deep") {
		t.Errorf("%v", err)
	}
	err = filters.Check(patch(structpb.NewStringValue("\xff")))
	if want := "spec.configPatches[1].patch.value.fields[key].stringValue: is not text in UTF-8"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// FuzzYAMLToJSON: the result is JSON and has no more values than CountValues returns, apart
// from expanded aliases.
func FuzzYAMLToJSON(f *testing.F) {
	for _, bomb := range bombs() {
		if len(bomb.text) < 10_000 {
			f.Add([]byte(bomb.text))
		}
	}
	f.Add([]byte("a: &a {b: c}\nd: [*a, {<<: *a}]\n"))
	f.Add([]byte("? - a\n: - - b\n  - !!str 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := config.YAMLToJSON(data)
		if err != nil {
			return
		}
		values := 0
		tokens := json.NewDecoder(bytes.NewReader(text))
		tokens.UseNumber()
		for {
			token, err := tokens.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%q became %q: %v", data, text, err)
			}
			if token != json.Delim('}') && token != json.Delim(']') {
				values++
			}
		}
		if !bytes.Contains(data, []byte("*")) && values > 2*config.CountValues(data) {
			t.Errorf("%q has %d values, counted as %d", data, values, config.CountValues(data))
		}
	})
}

// FuzzFromJSON: an object that is read, written and read again stays the same.
func FuzzFromJSON(f *testing.F) {
	for _, bomb := range bombs() {
		if len(bomb.text) < 10_000 {
			f.Add([]byte(bomb.text))
		}
	}
	f.Add([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"a","namespace":"b","uid":"c","generation":3,"creationTimestamp":"2026-01-31T12:00:00Z",
		"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"b","uid":"c","controller":true}]},"spec":{"selector":{"a":"b"}},"status":{"observedGeneration":3}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Chest","metadata":{"name":"a"},"type":"oak","data":{"a":"AAEC"},"words":{"b":"<"},"status":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		object, err := config.FromJSON(data, resolveAny)
		if err != nil {
			return
		}
		object.GenerateName = ""
		kind, err := resolveAny(object.APIVersion(), object.Kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := kind.Codec.Check(object.Spec); err != nil {
			t.Fatalf("%q cannot be stored: %v", data, err)
		}
		text, err := config.ToJSON(object, "")
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.FromJSON(text, resolveAny)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, text, err)
		}
		if d := cmp.Diff(object, again, protocmp.Transform()); d != "" {
			t.Errorf("%q (-first +second):\n%s", data, d)
		}
	})
}
