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
	request := call.Request{Method: http.MethodGet, Path: path, Query: query}
	if len(operations) > 0 {
		request.Method, request.Body = http.MethodPost, batch.New(operations...)
	}
	return e.CallTheServerOf(ctx, request, into)
}

// CallTheServerOf is AskTheServerOf for any request.
func (e *Environment) CallTheServerOf(ctx context.Context, request call.Request, into any) error {
	do := func(ctx context.Context, c *client.Client) error {
		_, err := c.Do(ctx, request, into)
		return err
	}
	err := e.Call(ctx, do)
	there, server, ok := admin.ConnectedElsewhere(err, request.Query)
	if !ok {
		return err
	}
	request.Query = there
	if elsewhere := e.At(server).Call(ctx, do); elsewhere == nil || isAnswer(elsewhere) {
		return elsewhere
	}
	return err
}

// isAnswer says whether an error is the answer of the server that has the proxy.
func isAnswer(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Code != http.StatusMisdirectedRequest
}
