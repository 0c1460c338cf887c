package debug

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/side"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// What an archive has at most: bytes of one file, proxies, events and changes.
const (
	maxPart    = 64 << 20
	maxProxies = 1000
	maxEvents  = 1000
	maxRecords = 500
)

// part is one file of the archive.
type part struct {
	name, what string
	binary     bool
	fetch      func(ctx context.Context, e *environment, c *client.Client) ([]byte, error)
}

// parts returns those of every archive, in their order in it.
func parts() []part {
	return []part{
		{name: "version.json", what: "the version of the server", fetch: path("/version")},
		{name: "settings.json", what: "the settings of the server; given says which somebody set", fetch: path(maintenance.SettingsPath)},
		{name: "readyz.txt", what: "its health by check, as /readyz says it", fetch: health},
		{name: "metrics.txt", what: "its metrics at that time", fetch: path("/metrics")},
		{name: "registered-metrics.txt", what: "all metrics that it can have, with their help and labels", fetch: path(maintenance.MetricsPath)},
		{name: "store.json", what: "the store and its members, the cache, registries and jobs, as portolan store status says it", fetch: path(maintenance.StatusPath)},
		{name: "quarantine.json", what: "keys of the store that cannot be served", fetch: path(maintenance.QuarantinePath)},
		{name: "sealing.json", what: "which keys seal the secrets, by their ids", fetch: path(maintenance.SealingPath)},
		{name: "authority.json", what: "the certificate authority and the trusted roots", fetch: path(maintenance.AuthorityPath)},
		{name: "sources.json", what: "the sources of configuration, and what is wrong with them", fetch: path(serve.SourcesPath)},
		{name: "proxies.json", what: fmt.Sprintf("the proxies of all servers and what they have acknowledged: %d at most, those that lag or refuse first", maxProxies), fetch: proxies},
		{name: "findings.json", what: "what is odd about objects, as portolan analyze says it", fetch: findings},
		{name: "events.json", what: fmt.Sprintf("what happened to objects in the last hour: %d at most, the newest first", maxEvents), fetch: events},
		{name: "audit.json", what: fmt.Sprintf("the last %d changes, without the objects", maxRecords), fetch: changes},
		{name: "log.txt", what: "the newest lines of the log", fetch: path(maintenance.LogPath)},
		{name: "goroutines.txt", what: "the stacks of all goroutines, equal ones counted", fetch: path(maintenance.GoroutinesPath)},
		{name: "heap.pprof", what: "a profile of the heap, for go tool pprof", binary: true, fetch: path(maintenance.HeapPath)},
	}
}

// proxyParts returns the configurations of proxies that are asked for.
func (e *environment) proxyParts(nodes []string) []part {
	var out []part
	for i, node := range nodes {
		out = append(out, part{
			name: fmt.Sprintf("proxy-%d-%s.json", i+1, fileName(node)), what: "the configuration of the proxy " + node,
			fetch: func(ctx context.Context, e *environment, _ *client.Client) ([]byte, error) {
				var answer json.RawMessage
				err := e.AskTheServerOf(ctx, admin.ProxyConfigPath, url.Values{"node": {node}}, &answer)
				return indented(answer), err
			},
		})
	}
	return out
}

// fileName keeps of a text what every file system takes.
func fileName(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, text[:min(len(text), 100)])
}

// path gets the answer at a path as it is.
func path(path string) func(context.Context, *environment, *client.Client) ([]byte, error) {
	return func(ctx context.Context, _ *environment, c *client.Client) ([]byte, error) {
		return answer(ctx, c, call.Request{Method: http.MethodGet, Path: path})
	}
}

func health(ctx context.Context, _ *environment, c *client.Client) ([]byte, error) {
	return answer(ctx, c, call.Request{Method: http.MethodGet, Path: "/readyz", Query: url.Values{"verbose": {""}}, Unready: true})
}

// answer reads an answer of at most maxPart bytes.
func answer(ctx context.Context, c *client.Client, in call.Request) ([]byte, error) {
	response, err := c.Open(ctx, in, "the answer")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPart+1))
	if err == nil && len(body) > maxPart {
		err = fmt.Errorf("the answer is larger than %s, and left out", cli.FormatMiB(maxPart))
	}
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		body = indented(body)
	}
	return body, nil
}

// indented returns JSON for people, and any other text as it is.
func indented(text []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return text
	}
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n')
}

func document(value any) ([]byte, error) {
	var out bytes.Buffer
	err := cli.WriteDocument(&out, "json", value)
	return out.Bytes(), err
}

func proxies(ctx context.Context, e *environment, _ *client.Client) ([]byte, error) {
	list, err := e.Proxies(ctx, "")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b progress.ProxyStatus) int {
		return cmp.Compare(lag(a), lag(b))
	})
	list.Items = list.Items[:min(len(list.Items), maxProxies)]
	list.Gone = list.Gone[:min(len(list.Gone), maxProxies)]
	return document(list)
}

// lag is 0 for a proxy that lacks or refuses something, and 1 for any other.
func lag(p progress.ProxyStatus) int {
	if p.StaleSince.IsZero() {
		return 1
	}
	return 0
}

func findings(ctx context.Context, _ *environment, c *client.Client) ([]byte, error) {
	list, err := c.Findings(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	return document(list)
}

func events(ctx context.Context, _ *environment, c *client.Client) ([]byte, error) {
	list, err := c.List(ctx, client.Resource(schema.Side().Kind(schema.Event)), "", client.Selection{})
	if err != nil {
		return nil, err
	}
	last := map[string]time.Time{}
	for i := range list.Items {
		var event side.Event
		text, err := list.Items[i].MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, &event)
		}
		if err != nil {
			return nil, err
		}
		last[list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()] = event.Last()
	}
	slices.SortStableFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return last[b.GetNamespace()+"/"+b.GetName()].Compare(last[a.GetNamespace()+"/"+a.GetName()])
	})
	list.Items = list.Items[:min(len(list.Items), maxEvents)]
	return document(list)
}

func changes(ctx context.Context, _ *environment, c *client.Client) ([]byte, error) {
	list, err := c.Records(ctx, record.Query{Limit: maxRecords, Bare: true})
	if err != nil {
		return nil, err
	}
	return document(list)
}
