package maintenance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest"
)

// FormatPath is where a GET returns a Format.
const FormatPath = Path + "/format"

// A Format is whether a server and its store fit together. It takes a reading of
// the whole store.
type Format struct {
	metav1.TypeMeta `json:",inline"`
	Server          ServerFormat `json:"server"`
	Store           StoreFormat  `json:"store"`
	// Problems are what somebody should see to; there are none where all is well.
	Problems []string `json:"problems,omitempty"`
}

// ServerFormat is what the binary of a server writes, and the lowest format that
// a binary must have to read what it writes.
type ServerFormat struct {
	Version       string `json:"version"`
	StorageFormat int64  `json:"storageFormat"`
	MinReader     int64  `json:"minReader"`
}

// StoreFormat is what is in a store, as the server sees it.
type StoreFormat struct {
	// StorageFormat is the highest of any binary that has written to it, 0 where
	// none has, and MinReader the lowest of one that understands all there is.
	StorageFormat int64 `json:"storageFormat"`
	MinReader     int64 `json:"minReader"`
	// Objects are those of kinds that the server knows, among which those of
	// UnknownFields have fields that it does not know.
	Objects       int `json:"objects"`
	UnknownFields int `json:"unknownFields"`
	// UnknownKinds may be objects of kinds that it does not know.
	UnknownKinds int `json:"unknownKinds"`
	// Unreadable are keys that are none of an object, and values that cannot be
	// read.
	Unreadable int `json:"unreadable"`
}

// Formatter tells the format of a store. Errors are those of a store.
type Formatter interface {
	StoreFormat(context.Context) (Format, error)
}

func (o Options) format(w http.ResponseWriter, r *http.Request) error {
	if o.Format == nil {
		return lacking("know the format of", "it has none")
	}
	format, err := o.Format.StoreFormat(r.Context())
	if err != nil {
		return err
	}
	format.TypeMeta = typeMeta("StoreFormat")
	rest.WriteJSON(w, http.StatusOK, format)
	return nil
}
