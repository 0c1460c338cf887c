package config_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/config"
)

// scalars are unquoted scalars of YAML 1.1, and texts that look like one.
var scalars = strings.Fields(`a z yes Yes YES yep y Y on On off Off offer n N no No none true True TRUE truth false f null Null NULL ~ nil
	0 00 01 1 -1 +1 007 08 0o7 0x1F 0X1f 0b101 1_000 1. 1.0 1.5 .5 -.5 1e3 1E3 1e+3 .inf -.inf .nan 123456789012345678 1234567890123456789
	9223372036854775808 18446744073709551616 -9223372036854775808 10.0.0.1 1.2.3 1..2 1.2.3.4/8 192.168.0.0/16 10:30 1:2:3 190:20:30.15
	2026-01-31 2026-01-31T12:00:00Z 2001:db8::1 1s 100ms 1.5h 50% /path _x x-y x.y x/y a:b a<b a>b a&b a"b a\b a'b <<
	"quoted" 'single' "1" 'true' "~" "a\"b" 'it''s' "\u00e9" "\t" '' "" = -x .x`)

// TestPlainDocumentsAreAsSigsYAMLReadsThem compares documents without comments, tags and aliases,
// which are read the short way, with the library.
func TestPlainDocumentsAreAsSigsYAMLReadsThem(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, s := range scalars {
		for _, form := range []string{"a: %s\n", "%s: a\n", "a:\n- %s\n- b\n", "a: [%s, b]\n", "a: {b: %s, c: 1}\n", "b: x\na:\n  %s: {}\n  b: []\n", "---\nk: %s\n", "k:   %s  \n"} {
			texts = append(texts, fmt.Sprintf(form, s))
		}
	}
	texts = append(texts,
		"a: b c\n  d\n\n  e\n", "a: 'b\n\n  c'\n", "a: \"b \\\n  c\"\n", "a: |\n  b\n  c\nd: e\n", "a: >-\n  b\n  c\nd: e\n", "a:\nb:\n", "a: ''\nb: \"\"\n",
		"a: 1\na: 2\n", "a: {b: 1, b: 2}\n", "a: &x b\nc: *x\n", "a: !!str 1\n", "a: &x {b: 1}\nc: {<<: *x}\n", "a: # note\n  b\n", "a:\tb\n", "a: [b\n",
		"a: b: c\n", "- a\n- b\n", "text\n", "a:\n  - b\n - c\n", "a: b\n ---\n", "a: b\r\nc: d\r\n", "a: é\n", "? a\n: b\n", "? [a]\n: b\n", "a: b\n...\n",
	)
	texts = append(texts, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  labels: {app: shop, "n": 'yes'}
  name: shop
  namespace: edge
spec:
  hosts:
  - shop.edge.test
  - "*.test"
  http:
  - match:
    - headers:
        x-tenant:
          exact: tenant-01
      uri:
        prefix: /api/v1
    name: r01
    timeout: 1.5s
    route:
    - destination:
        host: shop.edge.test
        port:
          number: 8080
      weight: 90
`)
	for _, text := range texts {
		want, wantErr := yaml.YAMLToJSONStrict([]byte(text))
		got, err := config.YAMLToJSON([]byte(text))
		switch {
		case wantErr != nil && err == nil:
			t.Errorf("%q: is %s, and must fail: %v", text, got, wantErr)
		case err == nil && string(got) != string(want):
			t.Errorf("%q: is %s, and must be %s", text, got, want)
		case err != nil && wantErr == nil && !strings.Contains(err.Error(), "put it in quotes"):
			t.Errorf("%q: %v, and must be %s", text, err, want)
		}
	}
}
