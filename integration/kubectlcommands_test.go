package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// typed is one kubectl command as people type it.
type typed struct {
	line  string   // without "kubectl"; $DIR is a directory with files
	stdin string   // for -f -
	fails bool     // it is refused
	says  []string // words of the output
}

// kubectlFiles are the files that the commands use.
var kubectlFiles = map[string]string{
	"reviews.yaml": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop, labels: {app: reviews, team: a}}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  http:
  - route: [{destination: {host: reviews.shop.svc.cluster.local}}]
`,
	"service.yaml": `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop, labels: {app: reviews, team: a}}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9080, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ratings, namespace: shop, labels: {app: ratings, team: b}}
spec:
  hosts: [ratings.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9080, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.2}]
`,
	"rule.yaml": `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop, labels: {app: reviews}}
spec:
  host: reviews.shop.svc.cluster.local
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
`,
	"broken.yaml": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broken, namespace: shop}
spec: {hots: [a]}
`,
	"invalid.yaml": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: invalid, namespace: shop}
spec: {hosts: [a], http: [{}]}
`,
	"patch.yaml":         "metadata: {labels: {patched: file}}\n",
	"kustomization.yaml": "resources: [rule.yaml]\nnamespace: shop\nlabels: [{pairs: {made-by: kustomize}}]\n",
	"secret.txt":         "swordfish",
	"weight.yaml": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {http: [{route: [{destination: {host: reviews.shop.svc.cluster.local, subset: v2}}]}]}
`,
}

// kubectlCommands are run in order, on one server.
var kubectlCommands = []typed{
	// Looking around.
	{line: "version", says: []string{"Server Version: v"}},
	{line: "api-resources --namespaced=false", says: []string{"NAME"}},
	{line: "get --raw /openapi/v3", says: []string{"apis/networking.istio.io/v1"}},
	{line: "api-versions", says: []string{"networking.istio.io/v1", "security.istio.io/v1", "portolan.io/v1"}},
	{line: "api-resources", says: []string{"virtualservices", "vs", "wasmplugins"}},
	{line: "api-resources --api-group=networking.istio.io -o name", says: []string{"gateways.networking.istio.io"}},
	{line: "api-resources -o wide", says: []string{"patch"}},
	{line: "get --raw /version", says: []string{"gitVersion"}},
	{line: "get --raw /healthz", says: []string{"ok"}},
	{line: "get --raw /livez", says: []string{"ok"}},
	{line: "get --raw /readyz?verbose", says: []string{"ok"}},
	{line: "get --raw /apis/networking.istio.io/v1", says: []string{"APIResourceList"}},
	{line: "explain virtualservice", says: []string{"KIND:", "VirtualService", "spec"}},
	{line: "explain vs.spec.http.route", says: []string{"destination", "weight"}},
	{line: "explain destinationrule --recursive", says: []string{"trafficPolicy", "outlierDetection"}},
	{line: "explain vs --api-version=networking.istio.io/v1beta1", says: []string{"v1beta1"}},
	{line: "explain vs.spec.nothing", fails: true, says: []string{"does not exist"}},
	{line: "auth can-i get vs", says: []string{"yes"}},
	{line: "auth can-i patch vs", says: []string{"yes"}},
	{line: "auth can-i --list", says: []string{"Resources"}},
	{line: "auth whoami", says: []string{"Username"}},
	{line: "get vs", says: []string{"No resources found in shop namespace."}},
	{line: "get nothing", fails: true, says: []string{`the server doesn't have a resource type "nothing"`}},
	{line: "create namespace shop", says: []string{"namespace/shop created"}},
	{line: "label namespace shop a=b", says: []string{"labeled"}},
	{line: "get ns", says: []string{"shop", "Active"}},
	{line: "create configmap settings --from-literal=a=b", says: []string{"configmap/settings created"}},
	{line: "get cm settings -o jsonpath={.data.a}", says: []string{"b"}},
	{line: "get vs reviews", fails: true, says: []string{`virtualservices.networking.istio.io "reviews" not found`}},

	// Making and changing.
	{line: "apply -f $DIR/service.yaml", says: []string{"reviews created", "ratings created"}},
	{line: "apply -f $DIR/service.yaml", says: []string{"reviews unchanged", "ratings unchanged"}},
	{line: "apply -f $DIR/reviews.yaml --dry-run=client", says: []string{"created (dry run)"}},
	{line: "apply -f $DIR/reviews.yaml --dry-run=server", says: []string{"created (server dry run)"}},
	{line: "diff -f $DIR/reviews.yaml", fails: true, says: []string{"+kind: VirtualService"}},
	{line: "create -f $DIR/reviews.yaml", says: []string{"reviews created"}},
	{line: "create -f $DIR/reviews.yaml", fails: true, says: []string{"AlreadyExists"}},
	{line: "apply -f $DIR/reviews.yaml", says: []string{"reviews configured"}},
	{line: "diff -f $DIR/reviews.yaml"},
	{line: "apply -f $DIR/rule.yaml -f $DIR/reviews.yaml", says: []string{"destinationrule.networking.istio.io/reviews created"}},
	{line: "apply -f $DIR/broken.yaml", fails: true, says: []string{"spec.hots: unknown field: did you mean hosts?"}},
	{line: "apply -f $DIR/broken.yaml --validate=false", fails: true, says: []string{"spec.hots", "did you mean hosts?"}},
	{line: "apply -f $DIR/invalid.yaml", fails: true, says: []string{"spec.http[0]"}},
	{line: "get vs broken invalid", fails: true, says: []string{`"broken" not found`, `"invalid" not found`}},
	{line: "apply -f $DIR/none.yaml", fails: true, says: []string{"does not exist"}},
	{line: "apply -k $DIR", says: []string{"reviews configured"}},
	{line: "get dr -l made-by=kustomize -o name", says: []string{"destinationrule.networking.istio.io/reviews"}},
	{line: "kustomize $DIR", says: []string{"made-by: kustomize"}},
	{line: "label vs reviews tier=front", says: []string{"labeled"}},
	{line: "label vs reviews tier=back", fails: true, says: []string{"overwrite"}},
	{line: "label vs reviews tier=back --overwrite", says: []string{"labeled"}},
	{line: "label vs reviews tier-", says: []string{"unlabeled"}},
	{line: "label vs --all all=yes", says: []string{"labeled"}},
	{line: "label -f $DIR/rule.yaml from=file", says: []string{"labeled"}},
	{line: "annotate vs reviews example.com/why=because", says: []string{"annotated"}},
	{line: "annotate vs reviews example.com/why-", says: []string{"annotated"}},
	{line: "annotate vs reviews bad/key/x=y", fails: true, says: []string{"bad/key/x"}},
	{line: `patch vs reviews --type=merge -p {"metadata":{"labels":{"patched":"merge"}}}`, says: []string{"patched"}},
	{line: `patch vs reviews --type=merge -p {"metadata":{"labels":{"patched":"merge"}}}`, says: []string{"reviews patched"}},
	{line: `patch vs reviews --type=json -p [{"op":"replace","path":"/metadata/labels/patched","value":"json"}]`, says: []string{"patched"}},
	{line: `patch vs reviews --type=json -p [{"op":"test","path":"/metadata/name","value":"x"}]`, fails: true, says: []string{"test"}},
	{line: `patch vs reviews -p {"metadata":{"labels":{"x":"y"}}}`, fails: true, says: []string{"application/merge-patch+json"}},
	{line: "patch vs reviews --type=merge --patch-file=$DIR/patch.yaml", says: []string{"patched"}},
	{line: `patch vs reviews --type=merge --dry-run=server -p {"metadata":{"labels":{"dry":"run"}}} -o yaml`, says: []string{"dry: run"}},
	{line: `patch vs reviews --type=merge -p {"spec":{"hots":["a"]}}`, fails: true, says: []string{"spec.hots"}},
	{line: `patch vs none --type=merge -p {}`, fails: true, says: []string{"not found"}},
	{line: "replace -f $DIR/reviews.yaml", says: []string{"reviews replaced"}},
	{line: "replace -f $DIR/invalid.yaml", fails: true},
	{line: "replace --force -f $DIR/rule.yaml", says: []string{"replaced"}},

	// Server-side apply.
	{line: "apply --server-side -f $DIR/service.yaml", says: []string{"serverside-applied"}},
	{line: "apply --server-side -f $DIR/service.yaml --field-manager=other", says: []string{"serverside-applied"}},
	{line: "apply --server-side -f $DIR/weight.yaml --field-manager=weights", fails: true, says: []string{"conflict", "spec.http"}},
	{line: "apply --server-side --force-conflicts -f $DIR/weight.yaml --field-manager=weights", says: []string{"serverside-applied"}},
	{line: "get vs reviews -o yaml --show-managed-fields", says: []string{"manager: weights", "operation: Apply"}},
	{line: "diff --server-side -f $DIR/service.yaml"},
	{line: "apply view-last-applied se reviews", says: []string{"reviews"}},

	// Reading.
	{line: "get vs", says: []string{"NAME", "GATEWAYS", "HOSTS", "AGE", "reviews.shop.svc.cluster.local"}},
	{line: "get vs,dr,se", says: []string{"virtualservice.networking.istio.io/reviews", "destinationrule.networking.istio.io/reviews", "serviceentry.networking.istio.io/ratings"}},
	{line: "get vs/reviews se/ratings", says: []string{"virtualservice.networking.istio.io/reviews"}},
	{line: "get virtualservices.networking.istio.io", says: []string{"reviews"}},
	{line: "get virtualservices.v1beta1.networking.istio.io reviews -o yaml", says: []string{"apiVersion: networking.istio.io/v1beta1"}},
	{line: "get all", says: []string{"virtualservice.networking.istio.io/reviews"}},
	{line: "get istio-io", says: []string{"serviceentry.networking.istio.io/reviews"}},
	{line: "get se -A", says: []string{"NAMESPACE", "shop"}},
	{line: "get se -o wide", says: []string{"LOCATION", "MESH_INTERNAL"}},
	{line: "get se -o name", says: []string{"serviceentry.networking.istio.io/ratings"}},
	{line: "get se ratings -o yaml", says: []string{"address: 10.0.0.2"}},
	{line: "get se ratings -o json", says: []string{`"address": "10.0.0.2"`}},
	{line: "get se -o jsonpath={.items[*].metadata.name}", says: []string{"ratings reviews"}},
	{line: "get se -o custom-columns=N:.metadata.name,H:.spec.hosts[0]", says: []string{"ratings.shop.svc.cluster.local"}},
	{line: "get se -o go-template={{range.items}}{{.metadata.name}},{{end}}", says: []string{"ratings,reviews,"}},
	{line: "get se -l team=b", says: []string{"ratings"}},
	{line: "get se -l team,team!=b -o name", says: []string{"reviews"}},
	{line: "get se --field-selector metadata.name=ratings -o name", says: []string{"ratings"}},
	{line: "get se --field-selector spec.x=y", fails: true, says: []string{"spec.x"}},
	{line: "get se --sort-by=.metadata.name -o name", says: []string{"ratings"}},
	{line: "get se --show-labels", says: []string{"team=a"}},
	{line: "get se -L team", says: []string{"TEAM"}},
	{line: "get se --no-headers", says: []string{"ratings"}},
	{line: "get se --chunk-size=1", says: []string{"ratings", "reviews"}},
	{line: "get se --ignore-not-found nothing"},
	{line: "get se --show-kind", says: []string{"serviceentry.networking.istio.io/ratings"}},
	{line: "get -f $DIR/service.yaml", says: []string{"ratings", "reviews"}},
	{line: "describe vs reviews", says: []string{"Name:", "reviews", "Observed Generation:"}},
	{line: "describe se", says: []string{"ratings", "reviews"}},
	{line: "describe -f $DIR/rule.yaml", says: []string{"Subsets"}},
	{line: "wait --for=condition=Accepted vs/reviews --timeout=30s", says: []string{"condition met"}},
	{line: "wait --for=jsonpath={.spec.hosts[0]}=reviews.shop.svc.cluster.local vs/reviews --timeout=10s", says: []string{"condition met"}},
	{line: "wait --for=create vs/reviews --timeout=10s", says: []string{"condition met"}},
	{line: "events", says: []string{"LAST SEEN"}},

	// Secrets.
	{line: "create secret generic door --from-file=key=$DIR/secret.txt", says: []string{"secret/door created"}},
	{line: "create secret generic door --from-literal=a=b", fails: true, says: []string{"already exists"}},
	{line: "create secret generic two --from-literal=a=b --from-literal=c=d --dry-run=server", says: []string{"created (server dry run)"}},
	{line: "create secret generic three --from-literal=a=b --dry-run=client -o yaml", says: []string{"a: Yg=="}},
	{line: "apply -f -", stdin: "apiVersion: v1\nkind: Secret\nmetadata: {name: applied, namespace: shop}\nstringData: {a: b}\n", says: []string{"secret/applied created"}},
	{line: "apply -f -", stdin: "apiVersion: v1\nkind: Secret\nmetadata: {name: applied, namespace: shop}\nstringData: {a: b, c: d}\n", says: []string{"secret/applied configured"}},
	{line: `patch secret door -p {"metadata":{"labels":{"x":"y"}}}`, says: []string{"patched"}},
	{line: "label secret door z=1", says: []string{"labeled"}},
	{line: "get secrets", says: []string{"door", "Opaque", "applied"}},
	{line: "get secret door -o yaml", says: []string{"name: key"}},
	{line: "describe secret door", says: []string{"door"}},

	// What says a default, or spells a duration in its own way, is read back as it was written.
	{line: "apply -f -", stdin: spelledOut, says: []string{"destinationrule.networking.istio.io/spelled created", "virtualservice.networking.istio.io/spelled created"}},
	{line: "apply -f -", stdin: spelledOut, says: []string{"destinationrule.networking.istio.io/spelled unchanged", "virtualservice.networking.istio.io/spelled unchanged"}},
	{line: "diff -f -", stdin: spelledOut},
	{line: "apply --server-side -f -", stdin: spelledOut, says: []string{"spelled serverside-applied"}},
	{line: "diff --server-side -f -", stdin: spelledOut},
	{line: "get vs spelled -o jsonpath={.spec.http[0].route[0].weight}{.spec.http[0].timeout}", says: []string{"01m30s"}},
	{line: "delete vs,dr spelled", says: []string{"deleted"}},

	// Taking away.
	{line: "delete secret door applied", says: []string{`"door" deleted`}},
	{line: "delete vs nothing", fails: true, says: []string{"not found"}},
	{line: "delete vs nothing --ignore-not-found"},
	{line: "delete se -l team=b --dry-run=server", says: []string{"server dry run"}},
	{line: "delete se -l team=b", says: []string{`"ratings" deleted`}},
	{line: "delete -f $DIR/reviews.yaml", says: []string{`"reviews" deleted`}},
	{line: "delete -f $DIR/reviews.yaml", fails: true, says: []string{"not found"}},
	{line: "delete dr --all", says: []string{`"reviews" deleted`}},
	{line: "delete se,vs --all", says: []string{`"reviews" deleted`}},
	{line: "wait --for=delete se/reviews --timeout=10s"},
	{line: "get all", says: []string{"No resources found"}},
	{line: "delete namespace shop", says: []string{`"shop" deleted`}},
	{line: "get cm -n shop", says: []string{"No resources found"}},
}

// spelledOut has fields with their default values.
const spelledOut = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: spelled, namespace: shop}
spec:
  host: reviews
  exportTo: []
  trafficPolicy:
    loadBalancer: {simple: UNSPECIFIED, warmup: {duration: 60s}}
    connectionPool: {http: {h2UpgradePolicy: DEFAULT, maxRetries: 0}, tcp: {connectTimeout: 25ms}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: spelled, namespace: shop}
spec:
  hosts: [spelled]
  http:
  - timeout: 1m30s
    match: [{ignoreUriCase: false, port: 0}]
    route:
    - {destination: {host: reviews, subset: ""}, weight: 0}
    - {destination: {host: ratings}, weight: 100}
`

// TestKubectlAsTyped: the commands of kubectl that people type do what they say, with nothing added.
func TestKubectlAsTyped(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	dir := t.TempDir()
	for name, content := range kubectlFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range kubectlCommands {
		args := strings.Fields(c.line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$DIR", dir)
		}
		k.expectOutput(!c.fails, c.stdin, args, c.says...)
	}
	t.Logf("%d commands", len(kubectlCommands))
}

// TestTwoManagers: kubectl's server-side apply and portolan apply of one object lose nothing: each
// keeps what the other has set, and a field that both want is a conflict with a name.
func TestTwoManagers(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	mine, argo := ship("shop", "web", "10.0.0.1"), `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop, labels: {by: argo}}
spec: {exportTo: [.]}
`
	s.apply(mine)
	server := strings.Fields("apply --server-side --field-manager=argo -f -")
	k.expectOutput(true, argo, server, "serverside-applied")
	s.apply(strings.Replace(mine, "10.0.0.1", "10.0.0.2", 1))
	out := s.must("", "get", "se/web", "-n", "shop", "-o", "yaml")
	for _, word := range []string{"by: argo", "exportTo:", "10.0.0.2"} {
		if !strings.Contains(out, word) {
			t.Errorf("no %s in %s", word, out)
		}
	}
	if strings.Contains(out, "managedFields") {
		t.Errorf("people see who manages what: %s", out)
	}
	other := strings.Replace(mine, "resolution:", "exportTo: [bank]\n  resolution:", 1)
	refused := s.try(other, "apply", "-f", "-")
	if refused.code != 75 || !strings.Contains(refused.stderr, `conflict with "argo"`) || !strings.Contains(refused.stderr, "spec.exportTo") {
		t.Errorf("%+v", refused)
	}
	k.expectOutput(false, strings.Replace(mine, "10.0.0.1", "10.0.0.3", 1), server, `conflict with "portolan"`, ".spec.endpoints")
	s.must(other, "apply", "-f", "-", "--force-conflicts")
	if out := s.must("", "get", "se/web", "-n", "shop", "-o", "yaml"); !strings.Contains(out, "- bank") || !strings.Contains(out, "by: argo") {
		t.Error(out)
	}
}
