package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// API is an API in the shape of Kubernetes.
type API struct {
	URL string
	// Token is the token of the user; empty is none.
	Token  string
	Client *http.Client
}

// Do returns the code, the header and the body of an answer. A body is JSON, unless the header says
// otherwise.
func (a API) Do(ctx context.Context, method, path, body string, header map[string]string) (int, http.Header, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.Token != "" {
		r.Header.Set("Authorization", "Bearer "+a.Token)
	}
	r.Header.Set("User-Agent", "machinery/v1")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := a.Client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(text), err
}

// Send makes a request, and returns the body of the answer. It returns an error unless the request
// succeeds.
func (a API) Send(ctx context.Context, method, path, body string, header map[string]string) (string, error) {
	code, _, text, err := a.Do(ctx, method, path, body, header)
	if err == nil && code/100 != 2 {
		err = fmt.Errorf("%s %s: %d %s", method, path, code, text)
	}
	return text, err
}

// Kubeconfig returns a kubeconfig for the user of the API, with a context of a name and the server at
// an address.
func (a API) Kubeconfig(name, address string) []byte {
	return fmt.Appendf(nil, `{"kind": "Config", "apiVersion": "v1", "current-context": %[1]q, "contexts": [{"name": %[1]q, "context": {"cluster": "c", "user": "u"}}],
"clusters": [{"name": "c", "cluster": {"server": "https://%s", "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": %q}}]}`, name, address, a.Token)
}

// Ready returns an error while the server is not ready.
func (a API) Ready(ctx context.Context) error {
	_, err := a.Send(ctx, "GET", "/readyz", "", nil)
	return err
}

// AwaitReady waits until the server is ready.
func (a API) AwaitReady(ctx context.Context) error { return await(ctx, a.Ready) }

// Install installs the definitions that Istio publishes, and waits until their kinds are served.
func (a API) Install(ctx context.Context) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		return fmt.Errorf("look for istio.io/api: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "kubernetes", "customresourcedefinitions.gen.yaml"))
	if err != nil {
		return err
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		asJSON, err := yaml.YAMLToJSON(document)
		if err != nil {
			return err
		}
		if string(asJSON) == "null" {
			continue
		}
		if _, err := a.Send(ctx, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(asJSON), nil); err != nil {
			return err
		}
	}
	return await(ctx, a.servesIstio)
}

func (a API) servesIstio(ctx context.Context) error {
	for _, path := range []string{"networking.istio.io/v1/serviceentries", "networking.istio.io/v1/virtualservices"} {
		if _, err := a.Send(ctx, "GET", "/apis/"+path, "", nil); err != nil {
			return err
		}
	}
	text, err := a.Send(ctx, "GET", "/openapi/v3/apis/networking.istio.io/v1", "", nil)
	if err == nil && !json.Valid([]byte(text)) {
		err = fmt.Errorf("the OpenAPI of networking.istio.io is no JSON")
	}
	return err
}

// await tries until there is no error. If ctx ends, it returns the last one.
func await(ctx context.Context, try func(context.Context) error) error {
	const again = 50 * time.Millisecond
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}
