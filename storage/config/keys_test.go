package config_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
)

// TestKeysAreReadAsWritten: a key keeps its text, or is refused with its line and what to do.
func TestKeysAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a:\n  n: {exact: x}\n":               `line 2: YAML reads the key "n" as false: put it in quotes`,
		"a: {Y : 1, b: 2, off: 3}\n":          `line 1: YAML reads the key "Y" as true: put it in quotes; line 1: YAML reads the key "off" as false: put it in quotes`,
		"- on: 1\n- ok: 1\n- No: 1\n":         `line 1: YAML reads the key "on" as true: put it in quotes; line 3: YAML reads the key "No" as false: put it in quotes`,
		"labels:\n  1.10: a\n  0x1F: b\n":     `line 2: YAML reads the key "1.10" as 1.1: put it in quotes; line 3: YAML reads the key "0x1F" as 31: put it in quotes`,
		"TRUE: 1\n":                           `line 1: YAML reads the key "TRUE" as true: put it in quotes`,
		"a: {\"n\": 1, 'on': 2, \"1.10\": 3}": "",
		"n-1: a\nyes/no: b\non.off: c\n":      "",
		"8080: a\ntrue: b\n1.5: c\n-: d\n":    "",
		"a: n\n# n: x\nb: |\n  n: text\n":     "",
		"a: 10:30\nurl: http://n:1\n":         "",
		"{\"n\": 1}":                          "",
	} {
		raw, err := config.YAMLToJSON([]byte(text))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || err.Error() != want):
			t.Errorf("%q: %v, want %q", text, err, want)
		case want == "" && (strings.Contains(text, `"n"`) && !strings.Contains(string(raw), `"n"`) || strings.Contains(text, "8080") && !strings.Contains(string(raw), `"8080"`)):
			t.Errorf("%q: %s", text, raw)
		}
	}
}
