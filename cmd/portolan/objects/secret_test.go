package objects

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// filesOf writes a pair to files, and returns their names.
func filesOf(t *testing.T, pair secrettest.Pair) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, text := range map[string][]byte{cert: pair.Cert, key: pair.Key} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestSecretTLS stores a pair, shows its certificate, and replaces it. The labels stay.
func TestSecretTLS(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	cert, key := filesOf(t, secrettest.New(t, 50*24*time.Hour, "door.example", "www.door.example"))
	a.Must(t, "", "secret", "tls", "door", "-n", "shop", "--cert", cert, "--key", key)
	if out := a.Must(t, "", "secret", "list", "-n", "shop"); !strings.Contains(out, "CN=door.example") || !strings.Contains(out, "door.example,www.door.example") || !strings.Contains(out, "in 49d") {
		t.Errorf("list:\n%s", out)
	}
	document := a.Must(t, "", "get", "secret", "door", "-n", "shop", "-o", "yaml")
	a.Must(t, strings.Replace(document, "  name: door\n", "  name: door\n  labels: {team: shop}\n", 1), "apply", "-f", "-")
	cert, key = filesOf(t, secrettest.New(t, time.Hour, "new.example"))
	a.Must(t, "", "secret", "tls", "door", "-n", "shop", "--cert", cert, "--key", key)
	document = a.Must(t, "", "get", "secret", "door", "-n", "shop", "-o", "yaml")
	if !strings.Contains(document, "team: shop") || !strings.Contains(document, "CN=new.example") {
		t.Errorf("replaced:\n%s", document)
	}
	a.Must(t, "", "secret", "generic", "word", "-n", "shop", "--from-file", "one="+cert)
	if text := a.Must(t, "", "export", "-n", "shop"); strings.Contains(text, "Secret") {
		t.Errorf("exported:\n%s", text)
	}
}

// TestSecretListOfNone: an empty list says which namespace it is about.
func TestSecretListOfNone(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	for args, want := range map[string]string{
		"": "No secrets found in namespace default; -A looks in all.\n", "-n shop": "No secrets found in namespace shop; -A looks in all.\n", "-A": "No secrets found.\n",
	} {
		if o := a.Do(t, "", append([]string{"secret", "list"}, strings.Fields(args)...)...); o.Code != exit.OK || o.Err != want {
			t.Errorf("%q: %d, %q", args, o.Code, o.Err)
		}
	}
}

// TestFileNames: a file that several entries share is named once.
func TestFileNames(t *testing.T) {
	t.Parallel()
	if got := fileNames(map[string]string{"tls.key": "a", "tls.crt": "b", "ca.crt": "b"}); got != "b, a" {
		t.Error(got)
	}
}

func TestSecretUsage(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	cert, key := filesOf(t, secrettest.New(t, time.Hour, "a.example"))
	_, other := filesOf(t, secrettest.New(t, time.Hour, "b.example"))
	for args, want := range map[string]string{
		"tls door --cert " + cert:                     "--key FILE",
		"tls door --cert " + cert + " --key /nowhere": "no such file",
		"tls door --cert " + cert + " --key " + other: "is not the key of the first certificate",
		"tls door --cert " + key + " --key " + cert:   "has a private key",
		"list -o wide":               `-o "wide": use json or yaml`,
		"generic door":               "--from-file is missing",
		"generic door --from-file a": "give ENTRY=FILE",
		"generic door --from-file a=" + cert + " --from-file a=" + key: "each entry once",
	} {
		if o := a.Do(t, "", append([]string{"secret"}, strings.Fields(args)...)...); o.Code == 0 || !strings.Contains(o.Err, want) {
			t.Errorf("%s: %+v, want %q", args, o, want)
		}
	}
}
