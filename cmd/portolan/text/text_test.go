package text_test

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/storage/access"
)

func TestText(t *testing.T) {
	t.Parallel()
	long, now := []string{"a", "b", "c", "d", "e"}, time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{text.List(long[:3], false), "a,b,c"},
		{text.List(long, false), "a,b,c +2 more"},
		{text.List(long, true), "a,b,c,d,e"},
		{text.ListOf([]int{1, 2}, func(n int) string { return text.Number(uint32(n)) }, false), "1,2"},
		{text.Pairs(map[string]int{"b": 2, "a": 1}, false), "a=1,b=2"},
		{text.Age(now, now.Add(-90*time.Minute)), "1h"},
		{text.Age(now, now.Add(time.Hour)), "0s"},
		{text.Age(now, time.Time{}), ""},
		{text.Plain("a\x1b[1m\nb"), "a [1m b"},
		{text.Port(80, "HTTP"), "80/HTTP"},
		{text.Number(0), ""},
		{text.TokenIdentity(&access.JoinToken{ServiceAccount: "web"}), "web"},
		{text.Uses(&access.JoinToken{Used: 1, Uses: 3}), "1/3"},
		{text.Rule(access.Rule{Verbs: []string{"get", "list"}, Kinds: []string{"virtualservices"}, Names: []string{"a"}, Namespaces: []string{"shop"}, Hosts: []string{"*"}}), "get,list virtualservices named a in shop for *"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
