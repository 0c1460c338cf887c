package maintenance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
)

// FormatPath answers a GET with a Format.
const FormatPath = Path + "/format"

// A Format says whether a server and its store are compatible. To find out, the server
// reads the whole store.
type Format struct {
	metav1.TypeMeta `json:",inline"`
	Server          ServerFormat `json:"server"`
	Store           StoreFormat  `json:"store"`
	// Problems need an operator's attention; there are none if all is well.
	Problems []string `json:"problems,omitempty"`
}

// ServerFormat is the format that a server's binary writes, and the lowest format that
// a binary must know to read it.
type ServerFormat struct {
	Version       string `json:"version"`
	StorageFormat int64  `json:"storageFormat"`
	MinReader     int64  `json:"minReader"`
}

// StoreFormat is the format of a store's content, as the server sees it.
type StoreFormat struct {
	// StorageFormat is the highest format of any binary that has written to the store; 0
	// if none has. MinReader is the lowest format that understands all content.
	StorageFormat int64 `json:"storageFormat"`
	MinReader     int64 `json:"minReader"`
	// Objects counts the objects of kinds that the server knows. UnknownFields counts
	// those among them that have fields unknown to it.
	Objects       int `json:"objects"`
	UnknownFields int `json:"unknownFields"`
	// UnknownKinds counts keys that may be objects of kinds unknown to the server.
	UnknownKinds int `json:"unknownKinds"`
	// Unreadable counts keys that no object can have, and values that cannot be decoded.
	Unreadable int `json:"unreadable"`
}

// Formatter reads the format of a store. It returns errors of package storage.
type Formatter interface {
	StoreFormat(context.Context) (Format, error)
}

func (o Options) format(w http.ResponseWriter, r *http.Request) error {
	if o.Format == nil {
		return unsupported("know the format of", "it has none")
	}
	format, err := o.Format.StoreFormat(r.Context())
	if err != nil {
		return err
	}
	format.TypeMeta = typeMeta("StoreFormat")
	rest.WriteJSON(w, http.StatusOK, format)
	return nil
}
