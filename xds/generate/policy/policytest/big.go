package policytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Big returns big sets of ALLOW policies, each with a request that they let pass and one that they
// refuse.
func Big(tb testing.TB) []Group {
	tb.Helper()
	const policies, blocks, principals = 1000, 10_000, 5000
	var many []*config.Config
	for i := range policies {
		many = append(many, read(tb, fmt.Sprintf("p%d", i), fmt.Appendf(nil, "{rules: [{from: [{source: {namespaces: [n%d]}}], to: [{operation: {paths: ['/p%[1]d/*'], methods: [GET]}}]}]}", i), false))
	}
	one := func(field string, n int, value func(i int) string) []*config.Config {
		values := make([]string, n)
		for i := range values {
			values[i] = value(i)
		}
		return []*config.Config{read(tb, "p0", fmt.Appendf(nil, "{rules: [{from: [{source: {%s: [%s]}}]}]}", field, strings.Join(values, ", ")), false)}
	}
	return []Group{
		{Name: "1000 policies", Policies: many, Requests: []Request{
			{Identity: "td/ns/n999/sa/web", Path: "/p999/a", Want: true}, {Identity: "td/ns/n998/sa/web", Path: "/p999/a"},
		}},
		{Name: "10000 IP blocks", Policies: one("ipBlocks", blocks, func(i int) string { return fmt.Sprintf("127.%d.%d.0/25", i/256, i%256) }), Requests: []Request{
			{Source: "127.39.15.1", Want: true}, {Source: "127.39.15.200"},
		}},
		{Name: "5000 principals", Policies: one("principals", principals, func(i int) string { return fmt.Sprintf("td/ns/n%d/sa/web", i) }), Requests: []Request{
			{Identity: "td/ns/n4999/sa/web", Want: true}, {Identity: "td/ns/n5000/sa/web"},
		}},
	}
}
