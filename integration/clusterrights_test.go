package integration

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// right is one right of the role on a page in docs/tasks.
type right struct{ group, resource, verb, where, page string }

func (r right) name() string {
	if r.group == "" {
		return r.resource
	}
	return r.resource + "." + r.group
}

// missing says whether a server names the right as the only one that an account lacks, with the page.
func (r right) missing(account, problem string) bool {
	words := fmt.Sprintf("the account %s may not %s %s %s: ", account, r.verb, r.name(), r.where)
	return strings.Contains(problem, words) && strings.Contains(problem, path.Join("docs/tasks", r.page)) && strings.Count(problem, "may not") == 1
}

// rightsOf returns the single rights to list and watch of the role on a page.
func rightsOf(t testing.TB, page string) (out []right) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(clusterRole(t, page)), role); err != nil {
		t.Fatal(err)
	}
	where := "in all namespaces"
	switch {
	case role.Namespace != "":
		where = "in the namespace " + role.Namespace
	case page == namespacesPage:
		where = "for the discoverySelectors of the mesh"
	}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if (verb == "list" || verb == "watch") && (resource == "wasmplugins") == (group == "extensions.istio.io") {
						out = append(out, right{group, resource, verb, where, page})
					}
				}
			}
		}
	}
	return out
}

// The pages with the rights to the objects, the namespaces and the secrets of clusters.
const (
	objectsPage    = "read-objects-of-a-cluster.md"
	namespacesPage = "../operations/mesh-config.md"
	secretsPage    = "secrets-of-a-cluster.md"
)

// expectEachRightNamed follows a cluster with many accounts. Each lacks one of the rights on the pages:
// then exactly that one is named. One has all of them, and nothing is wrong.
func (f *faultyCluster) expectEachRightNamed() {
	f.t.Helper()
	type account struct {
		flag, name string
		lacks      right // the zero value is none
	}
	var accounts []account
	args := []string{"--mesh-config", write(f.t, "mesh.yaml", "discoverySelectors: [{}]")}
	for flag, pages := range map[string][]string{
		"--services-kube": {servicesPage, namespacesPage}, "--config-kube": {objectsPage, namespacesPage}, "--secrets-kube": {secretsPage},
	} {
		var rights []right
		for _, page := range pages {
			of := rightsOf(f.t, page)
			if len(of) == 0 {
				f.t.Fatalf("%s has no rights", page)
			}
			rights = append(rights, of...)
		}
		for i, lacks := range append(rights, right{}) {
			a := account{flag, fmt.Sprintf("lacks%s-%d", flag[1:], i), lacks}
			accounts = append(accounts, a)
			role := &rbacv1.ClusterRole{}
			role.Name = a.name
			for _, r := range rights {
				if r != lacks {
					role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{r.verb}})
				}
			}
			text, err := json.Marshal(role)
			if err != nil {
				f.t.Fatal(err)
			}
			f.k.must("POST", rbacPath+"clusterroles", string(text))
			namespaces := ""
			if flag == "--secrets-kube" {
				f.k.bindIn("shop", a.name, a.name)
				namespaces = "=shop"
			} else {
				f.k.bind(a.name, a.name)
			}
			file := kubeconfig(f.t, `server: "`+f.k.api.url+`", certificate-authority: "`+f.k.api.ca+`"`, fmt.Sprintf("{token: %s, as: %s}", f.k.api.token, a.name))
			args = append(args, flag, a.name+"="+file+namespaces)
		}
	}
	s := &server{t: f.t, o: serverOptions{dataDir: filepath.Join(f.t.TempDir(), "rights"), args: args}, api: local(freePort(f.t)), xds: local(freePort(f.t)), client: clientOf(f.t)}
	s.launch()
	eventually(f.t, "each source names the right that it lacks", func() error {
		var sources serve.SourceList
		if _, err := s.get(serve.SourcesPath, &sources); err != nil {
			return err
		}
		for _, a := range accounts {
			name := map[string]string{"--services-kube": "services/", "--config-kube": "kube://", "--secrets-kube": "secrets/"}[a.flag] + a.name
			i := slices.IndexFunc(sources.Items, func(of serve.SourceStatus) bool { return of.Name == name })
			if i < 0 {
				return fmt.Errorf("there is no source %s", name)
			}
			problem := sources.Items[i].Problem
			switch {
			case a.lacks == right{}:
				if problem != "" {
					return fmt.Errorf("the rights on the page do not suffice: %s: %s", name, problem)
				}
			case !a.lacks.missing(a.name, problem):
				return fmt.Errorf("an account without the right to %s %s: the problem is %q", a.lacks.verb, a.lacks.resource, problem)
			}
		}
		return nil
	})
	if err := s.process.terminate(f.t); err != nil {
		f.t.Error(err)
	}
}
