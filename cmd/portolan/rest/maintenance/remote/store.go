package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
)

// StoreStatus returns the state of the server's store.
func (c Server) StoreStatus(ctx context.Context) (*maintenance.Status, error) {
	out := &maintenance.Status{}
	if err := c.JSON(ctx, maintenance.StatusPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// StoreSnapshot begins to read a snapshot of the whole store. Reading the body fails if
// the connection ends early; the reader checks by the hash whether it is whole. The
// context bounds the reading too.
func (c Server) StoreSnapshot(ctx context.Context) (*maintenance.Snapshot, error) {
	in := call.Request{Method: http.MethodGet, Path: maintenance.SnapshotPath}
	response, err := c.Open(ctx, in, "the snapshot")
	if err != nil {
		return nil, err
	}
	text := response.Header.Get(maintenance.RevisionHeader)
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the answer of %s%s is no snapshot: its %s is %q", c.Client.Server(), in.Path, maintenance.RevisionHeader, text)
	}
	return &maintenance.Snapshot{Body: response.Body, Revision: revision}, nil
}

// StoreKeys returns the keys of the server that belong into a backup. On their way they are
// sealed for this call alone.
func (c Server) StoreKeys(ctx context.Context) (escrow.Keys, error) {
	kem, _, _ := maintenance.Suite()
	recipient, err := kem.GenerateKey()
	if err != nil {
		return escrow.Keys{}, err
	}
	in, out := maintenance.SealedKeys{TypeMeta: storeType("SealedKeys"), Recipient: recipient.PublicKey().Bytes()}, &maintenance.SealedKeys{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.KeysPath, Body: in}, out); err != nil {
		return escrow.Keys{}, err
	}
	keys, err := maintenance.OpenKeys(out.Sealed, recipient)
	if err != nil {
		return keys, fmt.Errorf("the keys of %s cannot be opened: %w", c.Client.Server(), err)
	}
	return keys, nil
}

// CompactStore drops all revisions below a revision, 0 for the newest, and returns when
// their space is free for reuse.
func (c Server) CompactStore(ctx context.Context, revision int64) (*maintenance.Compaction, error) {
	in := maintenance.Compaction{TypeMeta: storeType("StoreCompaction"), Revision: revision}
	out := &maintenance.Compaction{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.CompactPath, Body: in}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// DefragmentStore makes the store give back unused space.
func (c Server) DefragmentStore(ctx context.Context) (*maintenance.Defragmentation, error) {
	out := &maintenance.Defragmentation{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.DefragmentPath}, out); err != nil {
		return nil, err
	}
	return out, nil
}

func storeType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: maintenance.APIVersion}
}
