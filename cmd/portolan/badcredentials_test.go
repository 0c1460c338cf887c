package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestBadTokensOfEveryCommand: a token that is unknown, expired, of another kind or no word is
// refused, whatever it is for.
func TestBadTokensOfEveryCommand(t *testing.T) {
	t.Parallel()
	var later atomic.Int64 // how far the clock of the server is ahead
	var keeper *access.Keeper
	var store *memory.Store
	server := resttest.Start(t, 0, func(o *rest.Options) {
		replica := o.Cache
		store = o.Store.(*memory.Store)
		keeper = access.NewKeeper(access.Options{
			Snapshot: func() *cache.Snapshot { return replica.Snapshot() }, Schemas: schema.All(), Root: "istio-system",
			Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
		})
		o.Authenticator, o.Authorizer, o.Sealer = keeper, keeper, rest.Sealers{schema.User: keeper}
	}, func(s *rest.Server) { credentials.Users(s, keeper, store) })
	a := line.On(server)
	boss := strings.TrimSpace(a.Must(t, "", "user", "create", "boss", "--role", "admin", "--ttl", "100h"))
	expired := strings.TrimSpace(a.Must(t, "", "user", "create", "late", "--role", "admin", "--ttl", "1h", "--token", boss))
	later.Store(int64(2 * time.Hour))
	before := a.Must(t, "", "get", "users", "-A", "-o", "yaml", "--token", boss)
	f := newBadInput(t)
	t.Run("commands", func(t *testing.T) {
		for name, c := range everyCommand() {
			use := usages[name]
			if use.offline || c == nil {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, wrong := range []struct {
					token string
					code  int
				}{
					{"put_" + strings.Repeat("A", 52), exit.Forbidden}, {expired, exit.Forbidden}, {"eyJhbGciOiJub25lIn0.e30.", exit.Forbidden}, {"x", exit.Forbidden},
					{" ", exit.Data}, {"two words", exit.Data}, {"ünïcode", exit.Data},
				} {
					args := append(f.line(name, use.good), "--server", server.URL, "--token-file", f.write(t, wrong.token))
					oneClearError(t, args, do(t, "", args...), wrong.code)
				}
			})
		}
	})
	if after := a.Must(t, "", "get", "users", "-A", "-o", "yaml", "--token", boss); after != before {
		t.Errorf("something is changed:\n%s", after)
	}
}

// TestBadContextsOfEveryCommand: a file of contexts that cannot be used is named by each command
// that would use it.
func TestBadContextsOfEveryCommand(t *testing.T) {
	f := newBadInput(t)
	a := startAPI(t)
	const entry = "- {name: a, server: \"http://127.0.0.1:1\"}\n"
	for what, text := range map[string]string{
		"two of a name":          "contexts:\n" + entry + "- {name: b}\n" + entry,
		"two after another":      "contexts:\n" + entry + entry,
		"no YAML":                "contexts: [unclosed\n\t- x: {",
		"another field":          "context:\n" + entry,
		"another kind":           "- a\n- b\n",
		"binary":                 "\x7fELF\x00\x01\xff\xfe\x80",
		"a current that is none": "current: b\ncontexts:\n" + entry,
	} {
		t.Run(what, func(t *testing.T) {
			file := f.write(t, text)
			t.Setenv("PORTOLAN_CONFIG", file)
			for name := range everyCommand() {
				if use := usages[name]; !use.offline && (!use.makesContext || !strings.HasPrefix(text, "current: ")) {
					args := f.line(name, use.good)
					oneClearError(t, args, do(t, "", append(args, "--server", a.URL)...), exit.Data)
				}
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		t.Setenv("PORTOLAN_CONFIG", t.TempDir())
		oneClearError(t, []string{"get", "vs"}, do(t, "", "get", "vs", "--server", a.URL), exit.Data)
	})
	t.Run("of others", func(t *testing.T) {
		file := f.write(t, "contexts:\n"+entry)
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PORTOLAN_CONFIG", file)
		oneClearError(t, []string{"get", "vs"}, do(t, "", "get", "vs", "--server", a.URL), exit.Data, "chmod 600")
	})
}

// TestDoubledArguments: what is said twice is refused where it could mean two things, and counts
// once where it cannot.
func TestDoubledArguments(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	file := filepath.Join(clitest.Write(t, map[string]string{"x.yaml": clitest.Entry("x", "")}), "x.yaml")
	a.Must(t, "", "apply", "-f", file)
	before := a.Must(t, "", "get", "se", "-A", "-o", "yaml")
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"apply -f FILE -f FILE":  {exit.Data, "is there twice"},
		"create -f FILE -f FILE": {exit.Data, "is there twice"},
		"label se/x a=b a=c":     {exit.Usage, "a is there twice"},
		"label se/x a=b a-":      {exit.Usage, "a is there twice"},
		"annotate se/x a=b a=b":  {exit.Usage, "a is there twice"},
		"secret generic d --from-file k=FILE --from-file k=FILE": {exit.Usage, "each entry once"},
		"patch se/x -p {} --patch-file FILE":                     {exit.Usage, "one of them"},
		"history se/x se/y":                                      {exit.Usage, "name one object"},
		"describe se/x se/y":                                     {exit.Usage, "name one object"},
		"get se/x --token a --token-file FILE":                   {exit.Usage, "one of the two"},
		"delete se/x -f FILE":                                    {exit.Usage, "either by files (-f) or by arguments"},
		"get se -n shop -A":                                      {exit.Usage, ""},
		"store backup new --key-file FILE --without-keys":        {exit.Usage, "one of them"},
	} {
		args := strings.Fields(strings.ReplaceAll(line, "FILE", file))
		oneClearError(t, args, a.Do(t, "", args...), want.code, want.says)
	}
	for _, line := range []string{"get se/x se/x -o name", "get se,se -o name", "delete se/x se/x --dry-run=client -o name"} {
		if o := a.Do(t, "", strings.Fields(line)...); o.Code != exit.OK || strings.Count(o.Out, "serviceentry/default/x\n") != 1 {
			t.Errorf("%s: %+v", line, o)
		}
	}
	if after := a.Must(t, "", "get", "se", "-A", "-o", "yaml"); after != before {
		t.Errorf("something is changed:\n%s", after)
	}
}
