package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
)

// TestPrintNames: a resolver is in use only if it was asked and answers.
func TestPrintNames(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]nameserver.Resolver{
		"resolver\t1.1.1.1:53: not asked yet\n":     {Address: "1.1.1.1:53"},
		"resolver\t1.1.1.1:53: in use\n":            {Address: "1.1.1.1:53", Asked: true},
		"resolver\t1.1.1.1:53: it did not answer\n": {Address: "1.1.1.1:53", Asked: true, Problem: "it did not answer"},
	} {
		var out bytes.Buffer
		printNames(&out, nameserver.Status{Resolvers: []nameserver.Resolver{r}}, time.Time.String)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
