package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/storage/config"
)

// TestReadLaterIsReadAtOnce: documents and faults of DecodeLater and ReadSpecs together are those
// of Decode.
func TestReadLaterIsReadAtOnce(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\n"
	for name, text := range map[string]string{
		"sound":                     head + "spec: {hosts: [a.shop]}\n---\n" + head,
		"a fault in a spec":         head + "spec: {hots: [a.shop]}\n---\n" + head + "spec: {hosts: a, ports: [{number: x}]}\n",
		"faults in and beside":      "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, nme: b}\nspec: {hots: []}\n",
		"a spec of Go":              "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop}\nstringData: {a: b}\n",
		"a list":                    "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: a}, spec: {servers: 1}}\n",
		"durations in another unit": "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\nspec: {hosts: [a], http: [{timeout: 1m}]}\n",
	} {
		want, wantErr := config.Decode("f.yaml", []byte(text), resolve)
		left, leftErr := config.DecodeLater("f.yaml", []byte(text), resolve)
		got, readErr := config.ReadSpecs(left)
		if d := cmp.Diff(errorLines(t, wantErr), append(errorLines(t, leftErr), errorLines(t, readErr)...)); d != "" {
			t.Errorf("%s: faults (-want +got):\n%s", name, d)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d documents, want %d", name, len(got), len(want))
			continue
		}
		for i := range want {
			if d := cmp.Diff(want[i].Config, got[i].Config, protocmp.Transform()); d != "" {
				t.Errorf("%s: object %d (-want +got):\n%s", name, i, d)
			}
			text, err := got[i].JSON()
			if err != nil {
				t.Fatal(err)
			}
			sent, err := config.FromJSON(text, resolve)
			if err != nil {
				t.Errorf("%s: %v in %s", name, err, text)
				continue
			}
			if d := cmp.Diff(want[i].Config, sent, protocmp.Transform()); d != "" {
				t.Errorf("%s: object %d as it is sent (-want +got):\n%s", name, i, d)
			}
		}
	}
}

// TestReadSpecsStopsAtManyFaults: the faults of each file are bounded, as those of Decode.
func TestReadSpecsStopsAtManyFaults(t *testing.T) {
	t.Parallel()
	const faulty = "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: a}\nspec: {servers: 1}\n"
	text := ""
	for range 150 {
		text += faulty
	}
	_, wantErr := config.Decode("f.yaml", []byte(text), resolve)
	want := errorLines(t, wantErr)
	var all []config.Document
	for _, file := range []string{"f.yaml", "g.yaml"} {
		left, err := config.DecodeLater(file, []byte(text), resolve)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, left...)
	}
	sound, err := config.ReadSpecs(all)
	got := errorLines(t, err)
	if len(sound) > 0 || len(got) != 2*len(want) {
		t.Fatalf("%d documents, %d faults, want %d", len(sound), len(got), 2*len(want))
	}
	if d := cmp.Diff(want, got[:len(want)]); d != "" {
		t.Errorf("faults of the first file (-want +got):\n%s", d)
	}
}
