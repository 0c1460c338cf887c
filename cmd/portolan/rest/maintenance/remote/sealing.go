package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// SealingStatus returns which keys seal the secrets.
func (c Server) SealingStatus(ctx context.Context) (*maintenance.SealingStatus, error) {
	out := &maintenance.SealingStatus{}
	if err := c.JSON(ctx, maintenance.SealingPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// SealingKeys returns the sealing keys of the server in the clear.
func (c Server) SealingKeys(ctx context.Context) (string, error) {
	out := &maintenance.SealingKeys{}
	err := c.JSON(ctx, maintenance.SealingKeysPath, out)
	return out.Text, err
}

// AddSealingKeys gives the server keys that another one exported; if the text is empty,
// the server makes one. It returns the ids of the keys that are new to the server.
func (c Server) AddSealingKeys(ctx context.Context, text string) ([]string, error) {
	out := &maintenance.SealingKeys{}
	_, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.SealingKeysPath, Body: maintenance.SealingKeys{Text: text}}, out)
	return out.Added, err
}

// Reseal makes a key the one that seals, the newest of the server if it is empty, and
// seals all secrets with it. lost gives up the key that seals now.
func (c Server) Reseal(ctx context.Context, key string, lost bool) (*maintenance.Resealing, error) {
	out := &maintenance.Resealing{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.ResealPath, Body: maintenance.Resealing{Key: key, Lost: lost}}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// SecretData returns the data of a secret in the clear.
func (c Server) SecretData(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	out := &maintenance.SecretData{}
	path := strings.NewReplacer("{namespace}", url.PathEscape(namespace), "{name}", url.PathEscape(name)).Replace(maintenance.SecretDataPath)
	err := c.JSON(ctx, path, out)
	return out.Data, err
}
