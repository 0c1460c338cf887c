package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
)

// kubeconfig returns a kubeconfig with the fields of a cluster and a user.
func kubeconfig(clusterFields, userFields string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: east
contexts: [{name: east, context: {cluster: c, user: u}}, {name: west, context: {cluster: none, user: u}}, {name: lost, context: {cluster: c, user: none}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
`, clusterFields, userFields)
}

const (
	secure = `server: "https://10.0.0.1:6443"`
	token  = `token: topsecret`
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		content string
		context string
		foreign bool   // it is the content of a Secret
		says    string // empty if it is accepted
	}{
		{name: "as it should be", content: kubeconfig(secure, token)},
		{name: "from a Secret", content: kubeconfig(secure, token), foreign: true},
		{name: "plaintext on this machine", content: kubeconfig(`server: "http://127.0.0.1:8080"`, token)},
		{name: "plaintext elsewhere", content: kubeconfig(`server: "http://10.0.0.1:8080"`, token), says: "10.0.0.1:8080 is on another machine, and would be followed in plaintext: use https"},
		{name: "no YAML", content: "topsecret: [", says: "is no valid kubeconfig"},
		{name: "a wrong type", content: kubeconfig(secure, "token: [topsecret]"), says: "is no valid kubeconfig"},
		{name: "no context", content: "apiVersion: v1\nkind: Config\n", says: "has no contexts: it needs one with a cluster and a user"},
		{name: "no current context", content: "apiVersion: v1\nkind: Config\ncontexts: [{name: west, context: {cluster: c}}, {name: east, context: {cluster: c}}]\n", says: "kubeconfig#CONTEXT with one of its contexts: east, west"},
		{name: "no current context in a Secret", content: "apiVersion: v1\nkind: Config\ncontexts: [{name: west, context: {cluster: c}}]\n", foreign: true, says: "has no current-context: set it to one of its contexts: west"},
		{name: "an unknown context", content: kubeconfig(secure, token), context: "north", says: `has no context "north", only east, lost, west`},
		{name: "no such cluster", content: kubeconfig(secure, token), context: "west", says: `names the cluster "none", which it does not have`},
		{name: "no such user", content: kubeconfig(secure, token), context: "lost", says: `names the user "none", which it does not have`},
		{name: "a file that is missing", content: kubeconfig(secure, "client-certificate: none.crt, client-key: none.key"), says: "none.crt: no such file"},
		{name: "programs from a Secret", content: kubeconfig(secure, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}"), foreign: true, says: "exec: would run a program here"},
		{name: "files from a Secret", content: kubeconfig(secure+", certificate-authority: /etc/ca", "tokenFile: /etc/shadow"), foreign: true, says: "certificate-authority: would read a file here"},
		{name: "any server from a Secret", content: kubeconfig(secure+", insecure-skip-tls-verify: true", token), foreign: true, says: "insecure-skip-tls-verify: would trust any server"},
		{name: "nothing from a Secret", content: kubeconfig("{}", "{}"), foreign: true, says: "is no valid kubeconfig"},
		{name: "no server from a Secret", content: kubeconfig("tls-server-name: a", token), foreign: true, says: "server: is missing"},
		{name: "no URL from a Secret", content: kubeconfig(`server: "topsecret:%zz"`, token), foreign: true, says: "server: is no URL"},
		{name: "plaintext from a Secret", content: kubeconfig(`server: "http://10.0.0.1"`, token), foreign: true, says: "server: is on another machine"},
		{name: "credentials in a URL from a Secret", content: kubeconfig(`server: "https://u:topsecret@10.0.0.1"`, token), foreign: true, says: "server: has credentials in its URL"},
		{name: "a proxy from a Secret", content: kubeconfig(secure+`, proxy-url: "topsecret:%zz"`, token), foreign: true, says: "proxy-url: is no URL"},
		{name: "no authority from a Secret", content: kubeconfig(secure+", certificate-authority-data: dG9wc2VjcmV0", token), foreign: true, says: "certificate-authority-data: has no certificate in PEM"},
		{name: "no key from a Secret", content: kubeconfig(secure, "client-certificate-data: dG9wc2VjcmV0"), foreign: true, says: "client-key-data: is missing"},
		{name: "no certificate from a Secret", content: kubeconfig(secure, "client-key-data: dG9wc2VjcmV0"), foreign: true, says: "client-certificate-data: is missing"},
		{name: "no pair from a Secret", content: kubeconfig(secure, "client-key-data: dG9wc2VjcmV0, client-certificate-data: dG9wc2VjcmV0"), foreign: true, says: "client-key-data: is not the key"},
		{name: "credentials twice from a Secret", content: kubeconfig(secure, token+", username: u, password: topsecret"), foreign: true, says: "kubeconfig: cannot be used"},
		{name: "all faults of a Secret", content: kubeconfig("insecure-skip-tls-verify: true", "tokenFile: /etc/shadow"), foreign: true, says: "tokenFile: would read a file here: use token; insecure-skip-tls-verify: would trust any server: use certificate-authority-data; server: is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := cluster.Options{Context: tc.context, Content: []byte(tc.content)}
			if !tc.foreign {
				o.Content, o.File = nil, filepath.Join(t.TempDir(), "kubeconfig")
				if err := os.WriteFile(o.File, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := cluster.New(o)
			switch {
			case tc.says == "" && err != nil:
				t.Fatal(err)
			case tc.says == "" && c.Name() != "east":
				t.Fatalf("the name is %q", c.Name())
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Fatalf("%v, not %q", err, tc.says)
			case err != nil && strings.Contains(err.Error(), "topsecret"):
				t.Fatalf("the error has a credential: %v", err)
			}
		})
	}
}

func TestParseRef(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]cluster.Options{
		"k":               {File: "k"},
		"k#east":          {File: "k", Context: "east"},
		"e=k#east":        {Name: "e", File: "k", Context: "east"},
		"/a=b/k#east=1":   {File: "/a=b/k", Context: "east=1"},
		"=k":              {},
		"e@st=k":          {},
		"gke_a.b-c=k":     {Name: "gke_a.b-c", File: "k"},
		"e=":              {},
		"#east":           {},
		"k#arn:aws:eks/x": {File: "k", Context: "arn:aws:eks/x"},
		"k#":              {},
		"e=k#":            {},
	} {
		got, err := cluster.ParseRef(ref)
		if (err != nil) != (want.File == "") {
			t.Errorf("%s: %v", ref, err)
		}
		if err == nil && (got.Name != want.Name || got.File != want.File || got.Context != want.Context) {
			t.Errorf("%s: %+v", ref, got)
		}
	}
	const all = `"=#" has an empty name: write NAME=KUBECONFIG#CONTEXT; "=#" names no kubeconfig: write KUBECONFIG#CONTEXT; ` +
		`"=#" has an empty context: write one behind the #, or leave the # out for the current context of the kubeconfig`
	if _, err := cluster.ParseRef("=#"); err == nil || err.Error() != all {
		t.Errorf("all faults are %v", err)
	}
}
