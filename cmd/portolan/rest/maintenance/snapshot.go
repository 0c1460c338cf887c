package maintenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// SnapshotPath answers a GET with a snapshot of the whole store: the bytes of etcd's
// database and then their SHA-256. RevisionHeader is a header of the answer: a snapshot
// of a lower revision lacks writes that were acknowledged before.
const (
	SnapshotPath   = Path + "/snapshot"
	RevisionHeader = "Portolan-Revision"
)

// A Snapshot is a snapshot that a store has begun to send.
type Snapshot struct {
	// Body has the bytes of the snapshot; the reader closes it.
	Body io.ReadCloser
	// Revision is at least the revision of every write that was acknowledged before.
	Revision int64
}

// Snapshotter takes snapshots of a store.
type Snapshotter interface {
	Snapshot(context.Context) (Snapshot, error)
}

// pieceTimeout is how long a client may take to read one piece of a snapshot.
const pieceTimeout = 30 * time.Second

func (o Options) snapshot(w http.ResponseWriter, r *http.Request) error {
	if o.Snapshots == nil {
		return unsupported("take snapshots of", "ask etcd itself, with etcdctl snapshot save FILE")
	}
	snapshot, err := o.Snapshots.Snapshot(r.Context())
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Body.Close() }()
	// Read the first piece before the header: an immediate error then becomes an error
	// answer.
	first := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(snapshot.Body, first, 1)
	if err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(RevisionHeader, strconv.FormatInt(snapshot.Revision, 10))
	w.WriteHeader(http.StatusOK)
	if err := send(w, io.MultiReader(bytes.NewReader(first[:n]), snapshot.Body)); err != nil {
		panic(http.ErrAbortHandler) // so that no client takes the part for the whole
	}
	return nil
}

// send copies to a client that may be slow, but not for ever.
func send(w http.ResponseWriter, from io.Reader) error {
	controller := http.NewResponseController(w)
	// Remove the deadline, since the connection may be used again. Connections without
	// support for deadlines have none.
	defer func() { _ = controller.SetWriteDeadline(time.Time{}) }()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		_ = controller.SetWriteDeadline(time.Now().Add(pieceTimeout))
		if _, err := w.Write(piece[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return controller.Flush()
		}
		if err != nil {
			return err
		}
	}
}
