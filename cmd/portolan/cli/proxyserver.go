package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// AskTheServerOf reads what a server says of a proxy, with operations as if they were applied. If
// another server has the proxy, it calls that server. If it cannot reach that one, it returns the
// first server's answer, which names it.
func (e *Environment) AskTheServerOf(ctx context.Context, path string, query url.Values, into any, operations ...batch.Operation) error {
	ask := func(query url.Values) func(context.Context, *client.Client) error {
		call := call.Request{Method: http.MethodGet, Path: path, Query: query}
		if len(operations) > 0 {
			call.Method, call.Body = http.MethodPost, batch.New(operations...)
		}
		return func(ctx context.Context, c *client.Client) error {
			_, err := c.Do(ctx, call, into)
			return err
		}
	}
	err := e.Call(ctx, ask(query))
	there, server, ok := admin.ConnectedElsewhere(err, query)
	if !ok {
		return err
	}
	if elsewhere := e.At(server).Call(ctx, ask(there)); elsewhere == nil || isAnswer(elsewhere) {
		return elsewhere
	}
	return err
}

// isAnswer says whether an error is the answer of the server that has the proxy.
func isAnswer(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Code != http.StatusMisdirectedRequest
}
