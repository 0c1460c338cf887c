package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
	"github.com/portolan-mesh/portolan/cmd/portolan/proxies"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/cmd/portolan/store"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/transcript"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// objectList is a list of objects of the API, each of which OpenAPI describes.
type objectList struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        any                         `json:"metadata,omitempty"`
	Items           []unstructured.Unstructured `json:"items"`
}

// document is a command line that prints a document with -o json.
type document struct {
	command, args string
	prints        any // a value of the type that it prints
	stdin         string
}

// documents has a command line for each command with -o json, in an order in which they work on a
// server with the objects of shop and a proxy. TestKeysOfJSON fails for a command without one.
func documents() []document {
	config, result, propagation := admin.ProxyConfig{}, batch.Result{}, admin.Propagation{}
	return []document{
		{"apply", "-f -", result, shop},
		{"create", "-f -", result, clitest.Entry("made", "")},
		{"replace", "-f -", result, clitest.Entry("made", ", labels: {a: b}")},
		{"label", "se/made a=c --overwrite", result, ""},
		{"annotate", "se/made a=c", result, ""},
		{"patch", `se/made -p {"spec":{"resolution":"DNS"}}`, result, ""},
		{"edit", "se/made", result, ""},
		{"rollback", "se/made --to-revision REV", result, ""},
		{"import", "-f -", result, clitest.Entry("brought", "")},
		{"delete", "se/brought --yes", result, ""},
		{"secret generic", "door --from-file key=FILE", result, ""},
		{"secret tls", "shop-cert --cert CERT --key KEY", result, ""},
		{"wait", "se/ratings", propagation, ""},
		{"get", "se", objectList{}, ""},
		{"get", "se/made", unstructured.Unstructured{}, ""},
		{"events", "-A", objectList{}, ""},
		{"export", "", objectList{}, ""},
		{"secret list", "-A", objectList{}, ""},
		{"secret status", "", maintenance.SealingStatus{}, ""},
		{"history", "se/made", record.List{}, ""},
		{"audit", "", record.List{}, ""},
		{"analyze", "", finding.List{}, ""},
		{"describe", "vs/ratings", objects.Description{}, ""},
		{"describe mesh", "", admin.Mesh{}, ""},
		{"describe service", "", admin.ServiceNames{}, ""},
		{"describe service", "ratings.shop", admin.ServiceList{}, ""},
		{"explain", "vs", spec.Schema{}, ""},
		{"explain request", "--from vm --to ratings.shop:80", explain.Explanation{}, ""},
		{"authz check", "--to vm --port 80", explain.AccessCheck{}, ""},
		{"machine list", "", objects.MachineList{}, ""},
		{"machine describe", "vm", objects.MachineDescription{}, ""},
		{"proxy status", "", admin.ProxyList{}, ""},
		{"proxy top", "", admin.ProxyList{}, ""},
		{"proxy log", "vm", transcript.Entry{}, ""},
		{"dns resolve", "ratings.shop", explain.Resolution{}, ""},
		{"proxy config all", "vm", config, ""},
		{"proxy config cluster", "vm", config, ""},
		{"proxy config endpoint", "vm", config, ""},
		{"proxy config extension", "vm", config, ""},
		{"proxy config listener", "vm", config, ""},
		{"proxy config route", "vm", config, ""},
		{"proxy config secret", "vm", config, ""},
		{"proxy disconnect", "vm", admin.Disconnected{}, ""},
		{"server log-level", "", maintenance.LogLevels{}, ""},
		{"source list", "", serve.SourceList{}, ""},
		{"source describe", "SOURCE", proxies.SourceDescription{}, ""},
		{"auth whoami", "", credentials.Self{}, ""},
		{"ca status", "", authority.Status{}, ""},
		{"token create", "--service-account web", credentials.Order{}, ""},
		{"token list", "", objectList{}, ""},
		{"user list", "", objectList{}, ""},
		{"store status", "", maintenance.Status{}, ""},
		{"store member list", "", maintenance.MemberList{}, ""},
		{"store quarantine list", "", maintenance.QuarantineList{}, ""},
		{"store inspect", "BACKUP", store.Inspection{}, ""},
		{"upgrade check", "", maintenance.Format{}, ""},
	}
}

const shop = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ratings}
spec:
  hosts: [ratings.shop]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: ratings}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm}
spec: {address: 10.0.0.1, labels: {app: ratings}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings}
spec:
  hosts: [ratings.shop]
  http: [{route: [{destination: {host: ratings.shop, subset: none}}]}]
`

// lines are the commands that print a document on each line, with -o jsonl.
var lines = map[string]bool{"proxy log": true}

var lowerCamelCase = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// TestKeysOfJSON: what -o json prints has keys that scripts can rely on: those of
// testdata/jsonkeys.txt, which only grow. Each command prints what its document says.
func TestKeysOfJSON(t *testing.T) {
	t.Setenv("PORTOLAN_EDITOR", "sed -i s/DNS/STATIC/")
	dir := clitest.Write(t, map[string]string{"config/a.yaml": clitest.Entry("ofafile", "")})
	configs := filepath.Join(dir, "config")
	server, log, _ := serveIn(t, filepath.Join(dir, "data"), "--sealing-key", filepath.Join(dir, "sealing.key"), "--config-dir", configs)
	f := newBadInput(t)
	addresses := regexp.MustCompile(`msg=ready api=\S+ xds=(\S+)`).FindStringSubmatch(log.String())
	proxy := xdstest.Dial(t, addresses[1], xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.1", "vm", "default", map[string]string{"app": "ratings"}), Follow: true})
	proxy.Subscribe(xdstest.ClusterType)
	proxy.Subscribe(xdstest.ListenerType)
	proxy.AwaitAnswer(xdstest.ListenerType, 0)
	commands := everyCommand()
	lists := map[string][]string{} // commands, by the keys of what they print
	done := map[string]bool{}
	revision := ""
	for _, d := range documents() {
		if d.command == "store inspect" {
			if o := do(t, "", "store", "backup", filepath.Join(dir, "backup"), "--without-keys", "--server", server); o.Code != 0 {
				t.Fatal(o.Err)
			}
		}
		args := append(f.line(d.command, strings.NewReplacer("REV", revision, "SOURCE", configs, "BACKUP", filepath.Join(dir, "backup")).Replace(d.args)), "-o", "json", "--server", server)
		if lines[d.command] {
			args = append(args, "-o", "jsonl")
		}
		o := do(t, d.stdin, args...)
		keys := keysOf(d.prints)
		var printed map[string]any
		if err := json.NewDecoder(strings.NewReader(o.Out)).Decode(&printed); err != nil {
			t.Errorf("%v prints no JSON: %v: %d %s%s", args, err, o.Code, o.Out, o.Err)
			continue
		}
		if kind, _ := printed["kind"].(string); kind == "" && !lines[d.command] && d.command != "explain" { // which prints a JSON schema
			t.Errorf("%s does not say which kind of document it prints", d.command)
		}
		for _, path := range keysIn(printed) {
			if !describes(keys, path) {
				t.Errorf("%s prints the key %s, which %T has not", d.command, path, d.prints)
			}
		}
		if now, ok := printed["revision"].(string); ok && d.command == "create" {
			revision = now
		}
		for _, path := range keys {
			for part := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ""), ".") {
				if part != "*" && part != "**" && !lowerCamelCase.MatchString(part) {
					t.Errorf("%s: the key %s is not in lowerCamelCase", d.command, path)
				}
			}
		}
		name := d.command
		if done[name] {
			name += " " + d.args
		}
		done[d.command] = true
		text := strings.Join(leaves(keys), "\n  ")
		lists[text] = append(lists[text], name)
	}
	for name, c := range commands {
		if flag := c.Flags().Lookup("output"); flag != nil && strings.Contains(flag.Usage, "json") && !done[name] {
			t.Errorf("%s has -o json and no row in documents", name)
		}
	}
	var sections []string
	for keys, of := range lists {
		slices.Sort(of)
		sections = append(sections, fmt.Sprintf("%s\n  %s\n", strings.Join(of, ", "), keys))
	}
	slices.Sort(sections)
	golden.Assert(t, strings.Join(sections, "\n"), "jsonkeys.txt")
}
