package cli

import (
	"testing"
)

func TestAmong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		some, others string
		want         bool
	}{
		{"https://a:1", "https://a:1", true},
		{"https://A:1/", "https://b:1,https://a:1", true},
		{"https://b:1,https://a:1", "https://a:1,https://b:1", true},
		{"https://a:1,https://c:1", "https://a:1,https://b:1", false},
		{"http://a:1", "https://a:1", false},
		{"", "https://a:1", false},
		{"https://a:1", "", false},
	} {
		if got := Among(test.some, test.others); got != test.want {
			t.Errorf("%q among %q: %v", test.some, test.others, got)
		}
	}
}
