package main

import (
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// usage says how a command is used well: what it does with bad input follows from that.
type usage struct {
	good    string // arguments with which it would do something; FILE stands for a file
	bare    bool   // it works without arguments, too
	many    bool   // it takes any number of arguments
	offline bool   // it asks no server
	// makesContext: a context that is not there is made.
	makesContext bool
	// lateFiles are flags whose files it reads behind others, as another command reads them.
	lateFiles []string
	// files are arguments with which it reads the file BAD. The value says whether any content
	// will do.
	files map[string]bool
}

// usages has a row for each command. TestBadInputOfEveryCommand fails for a command without one.
var usages = map[string]usage{
	"analyze":                 {bare: true, files: map[string]bool{"-f BAD": false}},
	"annotate":                {good: "vs/reviews a=b", many: true},
	"api-resources":           {bare: true, offline: true},
	"apply":                   {good: "-f FILE", files: map[string]bool{"-f BAD": false}},
	"audit":                   {bare: true},
	"auth can-i":              {good: "get vs"},
	"auth roles":              {bare: true, offline: true},
	"auth whoami":             {bare: true},
	"authz check":             {good: "--to shop/reviews", files: map[string]bool{"--to shop/reviews -f BAD": false, "--to shop/reviews --claims BAD": true}},
	"bootstrap":               {good: "--name a --ip 10.0.0.1", offline: true},
	"ca init":                 {bare: true},
	"ca root":                 {bare: true},
	"ca rotate abort":         {bare: true},
	"ca rotate finish":        {bare: true},
	"ca rotate start":         {bare: true},
	"ca status":               {bare: true},
	"certificate renew":       {good: "--out DIR", offline: true},
	"certificate request":     {good: "--out DIR --token-file TOKEN"},
	"completion bash":         {bare: true, offline: true},
	"completion fish":         {bare: true, offline: true},
	"completion powershell":   {bare: true, offline: true},
	"completion zsh":          {bare: true, offline: true},
	"config current-context":  {bare: true, offline: true},
	"config delete-context":   {good: "x", offline: true},
	"config get-contexts":     {bare: true, offline: true},
	"config set-context":      {good: "x", offline: true},
	"config use-context":      {good: "x", offline: true},
	"create":                  {good: "-f FILE", files: map[string]bool{"-f BAD": false}},
	"delete":                  {good: "vs/reviews --yes", many: true, files: map[string]bool{"-f BAD --yes": false}},
	"describe":                {good: "vs/reviews"},
	"describe service":        {bare: true},
	"diff":                    {good: "-f FILE", many: true, files: map[string]bool{"-f BAD": false}},
	"edit":                    {good: "vs/reviews", many: true},
	"events":                  {bare: true},
	"explain":                 {good: "vs", offline: true},
	"explain refusal":         {good: "x", offline: true},
	"explain request":         {good: "--from shop/a --to b:80", files: map[string]bool{"--from shop/a --to b:80 -f BAD": false}},
	"export":                  {bare: true, many: true},
	"get":                     {good: "vs", many: true},
	"history":                 {good: "vs/reviews"},
	"import":                  {good: "-f FILE", files: map[string]bool{"-f BAD": false}},
	"label":                   {good: "vs/reviews a=b", many: true},
	"login":                   {bare: true, makesContext: true},
	"logout":                  {bare: true, offline: true},
	"machine describe":        {good: "vm"},
	"machine drain":           {good: "vm"},
	"machine invite":          {good: "--service-account web --api-url https://mesh.example:15080 --xds-address mesh.example:15012"},
	"machine list":            {bare: true},
	"machine remove":          {good: "vm --yes"},
	"patch":                   {good: "vs/reviews -p {\"spec\":{\"a\":\"b\"}}", many: true, files: map[string]bool{"vs/reviews --patch-file BAD": false}},
	"proxy config all":        {good: "vm"},
	"proxy config cluster":    {good: "vm"},
	"proxy config endpoint":   {good: "vm"},
	"proxy config extension":  {good: "vm"},
	"proxy config listener":   {good: "vm"},
	"proxy config route":      {good: "vm"},
	"proxy config secret":     {good: "vm", files: map[string]bool{"vm --dump BAD": false}},
	"proxy diff":              {good: "vm", files: map[string]bool{"vm --dump BAD": false}},
	"proxy status":            {bare: true},
	"replace":                 {good: "-f FILE", files: map[string]bool{"-f BAD": false}},
	"rollback":                {good: "vs/reviews", many: true},
	"secret generic":          {good: "door --from-file key=FILE", files: map[string]bool{"door --from-file key=BAD": true}},
	"secret key add":          {bare: true},
	"secret key export":       {bare: true},
	"secret key import":       {good: "FILE", files: map[string]bool{"BAD": true}},
	"secret list":             {bare: true},
	"secret read":             {good: "door key"},
	"secret reseal":           {bare: true},
	"secret status":           {bare: true},
	"secret tls":              {good: "door --cert CERT --key KEY", files: map[string]bool{"door --cert BAD --key KEY": false, "door --cert CERT --key BAD": false, "door --cert CERT --key KEY --crl BAD": false}},
	"serve":                   {bare: true, offline: true},
	"source describe":         {good: "store"},
	"source list":             {bare: true},
	"store backup":            {good: "DIR/new --without-keys", files: map[string]bool{"DIR/new --key-file BAD": true, "DIR/new --passphrase-file BAD": true}},
	"store compact":           {bare: true},
	"store defrag":            {bare: true},
	"store inspect":           {good: "FILE", offline: true, files: map[string]bool{"BAD": false}},
	"store member add":        {good: "b --peer-url http://10.0.0.2:2380"},
	"store member invite":     {good: "b --peer-url http://10.0.0.2:2380"},
	"store member list":       {bare: true},
	"store member promote":    {good: "b"},
	"store member remove":     {good: "b"},
	"store quarantine delete": {good: "k"},
	"store quarantine list":   {bare: true},
	"store restore":           {good: "FILE --data-dir DIR/new", offline: true, files: map[string]bool{"BAD --data-dir DIR/new": false}, lateFiles: []string{"key-file", "passphrase-file"}},
	"store run":               {bare: true, many: true, offline: true},
	"store status":            {bare: true},
	"token create":            {good: "--service-account web"},
	"token list":              {bare: true},
	"token revoke":            {good: "x", many: true},
	"upgrade check":           {bare: true},
	"user create":             {good: "bob"},
	"user delete":             {good: "bob"},
	"user disable":            {good: "bob"},
	"user enable":             {good: "bob"},
	"user list":               {bare: true},
	"user token add":          {good: "bob"},
	"user token list":         {good: "bob"},
	"user token revoke":       {good: "bob x", many: true},
	"version":                 {bare: true, offline: true},
	"wait":                    {good: "vs/reviews"},
}

// everyCommand returns the commands that do something, by the words that call them.
func everyCommand() map[string]*cobra.Command {
	root := cli.NewRootCommand(&cli.Environment{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now, Schemas: schema.Pilot()}, whole())
	out := map[string]*cobra.Command{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if words := strings.TrimPrefix(c.CommandPath(), "portolan "); words != "portolan" && c.Name() != "help" && c.Runnable() && (!c.HasSubCommands() || c.Use != c.Name()) {
			out[words] = c
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(root)
	return out
}

// oneClearError fails the test unless a command failed with a code, printed nothing else than one
// error of few lines, and the error contains some words.
func oneClearError(t *testing.T, args []string, o clitest.Outcome, code int, words ...string) {
	t.Helper()
	what := strings.Join(args, " ")
	if o.Code != code || o.Out != "" {
		t.Errorf("%s: exit code %d, want %d: %q %s", what, o.Code, code, o.Out, o.Err)
	}
	for _, word := range words {
		if !strings.Contains(o.Err, word) {
			t.Errorf("%s: %q does not say %q", what, o.Err, word)
		}
	}
	text := o.Err
	if first, rest, _ := strings.Cut(text, "\n"); strings.HasPrefix(first, "No server listens at ") {
		text = rest
	}
	if lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n"); !strings.HasPrefix(text, "portolan: ") || strings.Count(text, "portolan: ") != 1 || len(lines) > 4 || len(text) > 1500 {
		t.Errorf("%s: it is not one clear error: %.2000s", what, o.Err)
	}
	for _, noise := range []string{"panic", "goroutine", "level=", "Usage:", "%!", "<nil>"} {
		if strings.Contains(o.Err, noise) {
			t.Errorf("%s: the error says %q: %s", what, noise, o.Err)
		}
	}
}

// TestBadInputOfEveryCommand: wrong, missing and surplus arguments, flags with values of another
// type, servers that cannot be or are not, contexts and tokens that are none: each gives one clear
// error and its exit code, and no server is changed.
func TestBadInputOfEveryCommand(t *testing.T) {
	t.Parallel()
	all := everyCommand()
	for _, name := range slices.Sorted(maps.Keys(usages)) {
		if all[name] == nil {
			t.Errorf("there is no command %s", name)
		}
	}
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	before := a.Must(t, "", "get", "se", "-A", "-o", "yaml")
	dir := clitest.Write(t, map[string]string{"good.yaml": clitest.Entry("x", ""), "empty": "", "token": "put_" + strings.Repeat("A", 52)})
	authority := securetest.New(t, "authority")
	files := authority.Write(t, t.TempDir(), authority.Issue(t, securetest.Leaf{Names: []string{"ann"}}))
	present := strings.NewReplacer("FILE", filepath.Join(dir, "good.yaml"), "DIR", dir, "TOKEN", filepath.Join(dir, "token"), "CERT", files.Cert, "KEY", files.Key)
	t.Run("commands", func(t *testing.T) {
		for name, c := range all {
			use, known := usages[name]
			if !known {
				t.Errorf("%s has no row in usages: say how it is used well", name)
				continue
			}
			good := append(strings.Fields(name), strings.Fields(present.Replace(use.good))...)
			refused := func(code int, words []string, more ...string) {
				t.Helper()
				args := append(slices.Clone(good), more...)
				oneClearError(t, args, do(t, "", args...), code, words...)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				refused(exit.Usage, []string{"--no-such-flag"}, "--no-such-flag")
				if !use.many {
					refused(exit.Usage, nil, "one", "two", "three", "four")
				}
				if !use.bare {
					bare := strings.Fields(name)
					oneClearError(t, bare, do(t, "", bare...), exit.Usage)
				}
				c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
					switch f.Value.Type() {
					case "bool", "int", "int64", "uint16", "duration":
						if f.Name != "help" {
							refused(exit.Usage, []string{"--" + f.Name, "nonsense"}, "--"+f.Name+"=nonsense")
						}
					}
				})
				if f := c.Flags().Lookup("output"); f != nil {
					refused(exit.Usage, []string{"nonsense"}, "--output=nonsense")
				}
				if use.offline {
					return
				}
				for server, says := range map[string]string{
					"file:///etc/hosts": "file", "http://[::1": "http://[::1", "https://": "https://", "http://mesh example": "mesh example", "ftp://mesh.example": "ftp",
					"http://127.0.0.1:notaport": "notaport",
				} {
					refused(exit.Usage, []string{says}, "--server", server)
				}
				refused(exit.Unreachable, []string{"127.0.0.1:1"}, "--server", "http://127.0.0.1:1", "--request-timeout", "50ms")
				refused(exit.Unreachable, []string{"is of no authority that is trusted here"}, "--server", untrusted.URL, "--request-timeout", "10s")
				if !use.makesContext {
					refused(exit.Data, []string{`there is no context "nowhere"`}, "--context", "nowhere", "--server", a.URL)
				}
				refused(exit.Data, []string{filepath.Join(dir, "none")}, "--token-file", filepath.Join(dir, "none"), "--server", a.URL)
				refused(exit.Data, []string{dir}, "--token-file", dir, "--server", a.URL)
				refused(exit.Data, []string{filepath.Join(dir, "empty")}, "--token-file", filepath.Join(dir, "empty"), "--server", a.URL)
			})
		}
	})
	if after := a.Must(t, "", "get", "se", "-A", "-o", "yaml"); after != before {
		t.Errorf("something is changed:\n%s", after)
	}
}

// readsFile are the names of flags that name a file.
var readsFile = []string{"filename", "patch-file", "from-file", "dump", "key-file", "passphrase-file", "crl", "claims"}

// TestBadFilesOfEveryCommand: a file that is missing, is a directory, cannot be read, is enormous or
// has other content than it should gives one clear error, and no server is changed.
func TestBadFilesOfEveryCommand(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	before := a.Must(t, "", "get", "se", "-A", "-o", "yaml")
	dir := clitest.Write(t, map[string]string{
		"good.yaml": clitest.Entry("x", ""), "empty": "", "binary": "\x7fELF\x00\x01\xff\xfe\x80", "other": "spec: [unclosed\n\t- x: {",
	})
	authority := securetest.New(t, "authority")
	files := authority.Write(t, t.TempDir(), authority.Issue(t, securetest.Leaf{Names: []string{"ann"}}))
	enormous := filepath.Join(dir, "enormous")
	if err := os.WriteFile(enormous, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(enormous, 300<<20); err != nil { // it takes no room
		t.Fatal(err)
	}
	unusable := []string{filepath.Join(dir, "none"), t.TempDir(), enormous}
	if _, err := os.Stat("/proc/self/mem"); err == nil {
		unusable = append(unusable, "/proc/self/mem") // root can open it, and nobody can read its beginning
	}
	odd := []string{filepath.Join(dir, "empty"), filepath.Join(dir, "binary"), filepath.Join(dir, "other")}
	t.Run("commands", func(t *testing.T) {
		for name, c := range everyCommand() {
			use := usages[name]
			lines := strings.Join(slices.Collect(maps.Keys(use.files)), " ")
			for _, flag := range readsFile {
				if f := c.LocalNonPersistentFlags().Lookup(flag); f != nil && !slices.Contains(use.lateFiles, flag) && !strings.Contains(lines, "--"+flag) && (f.Shorthand == "" || !strings.Contains(lines, "-"+f.Shorthand+" ")) {
					t.Errorf("%s: usages says of no line with --%s what becomes of bad files", name, flag)
				}
			}
			for line, anything := range use.files {
				t.Run(name+" "+line, func(t *testing.T) {
					t.Parallel()
					bad := unusable
					if !anything {
						bad = slices.Concat(unusable, odd)
					}
					for _, file := range bad {
						present := strings.NewReplacer("BAD", file, "FILE", filepath.Join(dir, "good.yaml"), "DIR", dir, "CERT", files.Cert, "KEY", files.Key)
						args := append(strings.Fields(name), strings.Fields(present.Replace(line))...)
						if !use.offline {
							args = append(args, "--server", a.URL)
						}
						oneClearError(t, args, do(t, "", args...), exit.Data, file)
					}
				})
			}
		}
	})
	if after := a.Must(t, "", "get", "se", "-A", "-o", "yaml"); after != before {
		t.Errorf("something is changed:\n%s", after)
	}
}
