package objects

import (
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

func someService() admin.ServiceList {
	v1, v2 := admin.SubsetRef{Name: "v1", Rule: "shop/reviews"}, admin.SubsetRef{Name: "v2", Rule: "shop/reviews"}
	return admin.ServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ServiceList"}, Revision: 815,
		Items: []admin.Service{{
			Hostname: "reviews.shop.internal", Namespace: "shop",
			Definitions: []admin.Definition{
				{Registry: "External", Name: "reviews", Resolution: "ClientSideLB", Address: "240.240.0.7", Ports: []admin.Port{{Name: "http", Number: 80, Protocol: "HTTP"}}, ExportTo: []string{"*"}},
				{Registry: "Consul", Name: "reviews", Resolution: "ClientSideLB", Ports: []admin.Port{{Name: "http", Number: 80, Protocol: "HTTP"}}},
			},
			Endpoints: []admin.Endpoint{
				{Registry: "External", Address: "10.0.0.2", Ports: []admin.Port{{Name: "http", Number: 8080, MTLS: "PERMISSIVE", Labelled: true}}, Locality: "eu/b", Health: admin.Healthy, Weight: 1, Workload: "shop/vm-2", Subsets: []admin.SubsetRef{v2}},
				{Registry: "External", Address: "10.0.0.1", Ports: []admin.Port{{Name: "http", Number: 8080, MTLS: "STRICT", MTLSFrom: "shop/default", Labelled: true}}, Locality: "eu/a", Health: admin.Healthy, Weight: 3, Workload: "shop/vm-1", Network: "lan", Subsets: []admin.SubsetRef{v1}},
				{Registry: "External", Address: "10.0.0.3", Locality: "eu/a", Health: admin.LeftOut, Reason: "503 Service Unavailable", Workload: "shop/vm-3"},
				{Registry: "Consul", Cluster: "dc1", Address: "10.1.0.1", Ports: []admin.Port{{Name: "http", Number: 80, MTLS: "PERMISSIVE"}}, Locality: "dc1", Health: admin.Unhealthy, Weight: 1, Subsets: []admin.SubsetRef{v2}},
			},
			Subsets: []admin.Subset{
				{SubsetRef: v1, Host: "reviews.shop.internal", Labels: map[string]string{"version": "v1"}, Endpoints: 1, Healthy: 1},
				{SubsetRef: v2, Host: "reviews.shop.internal", Labels: map[string]string{"version": "v2"}, Endpoints: 2, Healthy: 1},
				{SubsetRef: admin.SubsetRef{Name: "v3", Rule: "shop/reviews"}, Host: "reviews.shop.internal", Labels: map[string]string{"version": "v3"}},
			},
		}},
	}
}

func TestDescribeService(t *testing.T) {
	t.Parallel()
	var asked string
	out, err := serving(t, func(r *http.Request) any {
		if r.URL.Path == serve.StatusPath(discovery.Consul) {
			return consul.Status{Datacenters: []consul.DatacenterStatus{{Name: "dc1", Degraded: "Consul cannot be read"}, {Name: "dc2"}}}
		}
		asked = r.URL.String()
		return someService()
	}, "describe", "service", "reviews.shop.internal", "-n", "shop")
	if err != nil || asked != admin.ServicesPath+"?host=reviews.shop.internal&namespace=shop" {
		t.Fatalf("%v after %s", err, asked)
	}
	golden.Assert(t, out.Out, "describe-service.txt")
}

// TestDescribeServiceOfAFile: the command says what is odd about endpoints of a file, and why its
// content may be out of date.
func TestDescribeServiceOfAFile(t *testing.T) {
	t.Parallel()
	out, err := serving(t, func(r *http.Request) any {
		if r.URL.Path == serve.StatusPath(discovery.File) {
			return filesd.Status{Files: []filesd.FileStatus{{Name: "a.json"}, {Name: "b.json", Problem: "b.json cannot be read"}}}
		}
		list := someService()
		list.Items[0].Definitions = []admin.Definition{{Registry: "File", Name: "reviews", Places: []string{"a.json: group 2"}}}
		list.Items[0].Findings = []finding.Finding{{Code: "PTL0365", Severity: "warning", Message: "2 endpoints are odd", Remedy: "mend them"}}
		return list
	}, "describe", "service", "reviews.shop.internal")
	if err != nil || !strings.HasSuffix(out.Out, "\n! File: b.json cannot be read\n") || strings.Count(out.Out, "! File") != 1 || !strings.Contains(out.Out, "\n! warning [PTL0365] 2 endpoints are odd: mend them\n") || !clitest.HasLine(out.Out, []string{"File", "reviews", "from a.json: group 2"}) {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

// TestDescribeServiceOfClusters: each endpoint names the cluster that it is from.
func TestDescribeServiceOfClusters(t *testing.T) {
	t.Parallel()
	list := someService()
	list.Items[0].Endpoints = []admin.Endpoint{
		{Registry: "Kubernetes", Cluster: "west", Address: "10.2.0.1", Health: admin.Healthy},
		{Registry: "Kubernetes", Cluster: "east", Address: "10.1.0.1", Health: admin.Healthy},
		{Registry: "Consul", Cluster: "dc1", Address: "10.3.0.1", Health: admin.Healthy},
	}
	out, err := serving(t, func(r *http.Request) any {
		if r.URL.Path == admin.ServicesPath {
			return list
		}
		return consul.Status{}
	}, "describe", "service", "reviews.shop.internal")
	if err != nil || !clitest.HasLine(out.Out, []string{"Kubernetes (east)", "HEALTHY", "10.1.0.1"}) ||
		!clitest.HasLine(out.Out, []string{"Kubernetes (west)", "HEALTHY", "10.2.0.1"}) || !clitest.HasLine(out.Out, []string{"Consul", "HEALTHY", "10.3.0.1"}) {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

// TestDescribeExternalNames: a Service of the type ExternalName says what clients reach by its name.
func TestDescribeExternalNames(t *testing.T) {
	t.Parallel()
	const nothing = "Its external name db.example is no service that is exported to shop, and it has no port: clients reach nothing by this name."
	for name, c := range map[string]struct {
		aliasOf string
		ports   []admin.Port
		want    string
	}{
		"an alias":    {"db.example", nil, "Clients that see db.example reach that by this name too"},
		"of itself":   {"db.shop", nil, "It leads back to itself: clients reach nothing by this name."},
		"without":     {"", nil, nothing},
		"with a port": {"", []admin.Port{{Name: "db", Number: 5432}}, "No endpoints."},
	} {
		out, err := serving(t, func(r *http.Request) any {
			return admin.ServiceList{Items: []admin.Service{{
				Hostname: "db.shop", Namespace: "shop", AliasOf: c.aliasOf,
				Definitions: []admin.Definition{{Registry: "External", Name: "db", ExternalName: "db.example", Ports: c.ports}},
			}}}
		}, "describe", "service", "db.shop")
		if err != nil || !strings.Contains(out.Out, c.want) || strings.Contains(out.Out, nothing) != (c.want == nothing) {
			t.Errorf("%s: %v\n%s", name, err, out.Out)
		}
	}
}

// TestDescribeServices: without a name the command lists all services.
func TestDescribeServices(t *testing.T) {
	t.Parallel()
	var asked string
	list := admin.ServiceNames{Items: []admin.ServiceName{
		{Hostname: "reviews.shop.internal", Namespace: "shop", Registries: []string{"External", "File"}, Ports: []admin.Port{{Number: 80, Protocol: "HTTP"}}, Endpoints: 3, Healthy: 2},
		{Hostname: "web.shop.svc.cluster.local", Namespace: "shop", Registries: []string{"Kubernetes"}, Clusters: []string{"east", "west"}, Endpoints: 1},
	}}
	answer := func(r *http.Request) any { asked = r.URL.String(); return list }
	out, err := serving(t, answer, "describe", "service")
	if err != nil || asked != admin.ServicesPath || !clitest.HasLine(out.Out, []string{"reviews.shop.internal", "shop", "External,File", "80/HTTP", "2/3"}) ||
		!clitest.HasLine(out.Out, []string{"web.shop.svc.cluster.local", "shop", "Kubernetes (east,west)", "0/1"}) {
		t.Errorf("%v\n%s", err, out.Out)
	}
	if out, err = serving(t, answer, "describe", "service", "-n", "shop", "-o", "yaml"); err != nil || asked != admin.ServicesPath+"?namespace=shop" || !strings.Contains(out.Out, "healthy: 2") {
		t.Errorf("%v after %s\n%s", err, asked, out.Out)
	}
	list.Items = nil
	if out, err = serving(t, answer, "describe", "service"); err != nil || out.Out != "" || out.Err != "There are no services.\n" {
		t.Errorf("%v %+v", err, out)
	}
}

func TestDescribeServiceForPrograms(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"json", "yaml"} {
		out, err := serving(t, func(*http.Request) any { return someService() }, "describe", "svc", "reviews.shop.internal", "-o", form)
		if err != nil || !strings.Contains(out.Out, "LEFT OUT") || !strings.Contains(out.Out, "ServiceList") {
			t.Errorf("%s: %v\n%s", form, err, out.Out)
		}
	}
}

func TestDescribeAnUnknownService(t *testing.T) {
	t.Parallel()
	_, err := serving(t, func(*http.Request) any { return admin.ServiceList{Similar: []string{"reviews.shop.internal"}} },
		"describe", "service", "reviews", "-n", "shop")
	if err == nil || !strings.Contains(err.Error(), "in namespace shop") || !strings.Contains(err.Error(), "did you mean reviews.shop.internal?") {
		t.Errorf("%v", err)
	}
}

func TestGetWorkloadsShowsTheirHealth(t *testing.T) {
	t.Parallel()
	item := func(name, annotations, status string) string {
		return `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":"` + name + `","namespace":"shop","resourceVersion":"7",` +
			`"creationTimestamp":"2026-01-31T11:00:00Z","annotations":{` + annotations + `}},"spec":{"address":"10.0.0.1","locality":"eu/a","network":"lan"}` + status + `}`
	}
	condition := func(status string) string {
		return `,"status":{"conditions":[{"type":"Healthy","status":"` + status + `"}]}`
	}
	checked := `"proxy.istio.io/health-checks-enabled":"true"`
	list := `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntryList","metadata":{},"items":[` + strings.Join([]string{
		item("a", checked, condition("True")), item("b", checked, condition("False")), item("c", checked, ""), item("d", "", ""),
	}, ",") + `]}`
	out, err := serving(t, func(*http.Request) any { return list }, "get", "we", "-n", "shop", "-o", "wide")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.Out, "get-health.txt")
}
