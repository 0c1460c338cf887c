package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// right is one right of a role.
type right struct{ group, resource, verb string }

func (r right) name() string {
	if r.group == "" {
		return r.resource
	}
	return r.resource + "." + r.group
}

// missing returns how a server says that an account lacks the right.
func (r right) missing(account string) string {
	return fmt.Sprintf("the account %s may not %s %s in all namespaces: see docs/tasks/", account, r.verb, r.name())
}

// rightsOf returns the single rights to list and watch of the role on a page.
func rightsOf(t testing.TB, page string) (out []right) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(clusterRole(t, page)), role); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if (verb == "list" || verb == "watch") && (resource == "wasmplugins") == (group == "extensions.istio.io") {
						out = append(out, right{group, resource, verb})
					}
				}
			}
		}
	}
	return out
}

// expectEachRightNamed follows a cluster with many accounts. Each lacks one of the rights on the pages:
// then exactly that one is named. One has all of them, and nothing is wrong.
func (f *faultyCluster) expectEachRightNamed() {
	f.t.Helper()
	type account struct {
		flag, name string
		lacks      right // the zero value is none
	}
	var accounts []account
	var args []string
	for flag, page := range map[string]string{"--services-kube": servicesPage, "--config-kube": "read-objects-of-a-cluster.md"} {
		rights := rightsOf(f.t, page)
		if len(rights) < 8 {
			f.t.Fatalf("%s has %d rights", page, len(rights))
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
			f.k.bind(a.name, a.name)
			file := kubeconfig(f.t, `server: "`+f.k.api.url+`", certificate-authority: "`+f.k.api.ca+`"`, fmt.Sprintf("{token: %s, as: %s}", f.k.api.token, a.name))
			args = append(args, flag, a.name+"="+file)
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
			name := map[string]string{"--services-kube": "services/", "--config-kube": "kube://"}[a.flag] + a.name
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
			case !strings.Contains(problem, a.lacks.missing(a.name)) || strings.Count(problem, "may not") != 1:
				return fmt.Errorf("an account without the right to %s %s: the problem is %q", a.lacks.verb, a.lacks.resource, problem)
			}
		}
		return nil
	})
	if err := s.process.terminate(f.t); err != nil {
		f.t.Error(err)
	}
}
