package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
)

// StoreStatus returns the state of the server's store.
func (c *Client) StoreStatus(ctx context.Context) (*maintenance.Status, error) {
	out := &maintenance.Status{}
	if err := c.JSON(ctx, maintenance.StatusPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// StoreSnapshot begins to read a snapshot of the whole store. Reading the body fails if
// the connection ends early; the reader checks by the hash whether it is whole. The
// context bounds the reading too.
func (c *Client) StoreSnapshot(ctx context.Context) (*maintenance.Snapshot, error) {
	in := request{method: http.MethodGet, path: maintenance.SnapshotPath}
	response, err := c.send(ctx, in)
	if err != nil {
		return nil, err
	}
	text := response.Header.Get(maintenance.RevisionHeader)
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the answer of %s%s is no snapshot: its %s is %q", c.server, in.path, maintenance.RevisionHeader, text)
	}
	return &maintenance.Snapshot{Body: &bodyReader{response.Body, func(err error) error {
		return fmt.Errorf("the snapshot ended early: %w", c.unreachable(ctx, in, true, err))
	}}, Revision: revision}, nil
}

// StoreKeys returns the keys of the server that belong into a backup. On their way they are
// sealed for this call alone.
func (c *Client) StoreKeys(ctx context.Context) (escrow.Keys, error) {
	kem, _, _ := maintenance.Suite()
	recipient, err := kem.GenerateKey()
	if err != nil {
		return escrow.Keys{}, err
	}
	in, out := maintenance.SealedKeys{TypeMeta: storeType("SealedKeys"), Recipient: recipient.PublicKey().Bytes()}, &maintenance.SealedKeys{}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: maintenance.KeysPath, body: in}, out); err != nil {
		return escrow.Keys{}, err
	}
	keys, err := maintenance.OpenKeys(out.Sealed, recipient)
	if err != nil {
		return keys, fmt.Errorf("the keys of %s cannot be opened: %w", c.server, err)
	}
	return keys, nil
}

// A bodyReader explains why a body ended early.
type bodyReader struct {
	io.ReadCloser
	explain func(error) error
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // EOF is never wrapped
		err = b.explain(err)
	}
	return n, err
}

// CompactStore drops all revisions below a revision, 0 for the newest, and returns when
// their space is free for reuse.
func (c *Client) CompactStore(ctx context.Context, revision int64) (*maintenance.Compaction, error) {
	in := maintenance.Compaction{TypeMeta: storeType("StoreCompaction"), Revision: revision}
	out := &maintenance.Compaction{}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: maintenance.CompactPath, body: in}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// DefragmentStore makes the store give back unused space.
func (c *Client) DefragmentStore(ctx context.Context) (*maintenance.Defragmentation, error) {
	out := &maintenance.Defragmentation{}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: maintenance.DefragmentPath}, out); err != nil {
		return nil, err
	}
	return out, nil
}

func storeType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: maintenance.APIVersion}
}
