package call

import (
	"context"
	"net/http"
)

// Post sends a value in JSON to an escaped path of the server and decodes the answer. It
// never repeats a request that the server may have done.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	_, err := c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: body}, into)
	return err
}
