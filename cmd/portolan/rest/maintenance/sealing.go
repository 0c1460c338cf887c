package maintenance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
)

// SealingPath answers a GET with a SealingStatus.
//
// Below it, SealingKeysPath answers a GET with the SealingKeys of the server; a POST of
// SealingKeys adds those, and a POST without keys makes a new one. ResealPath takes a
// POST of a Resealing, and answers with one. SecretDataPath answers a GET with
// SecretData. They are all Private.
const (
	SealingPath     = "/apis/portolan.io/v1/sealing"
	SealingKeysPath = SealingPath + "/keys"
	ResealPath      = SealingPath + "/reseal"
	SecretDataPath  = SealingPath + "/data/{namespace}/{name}"
)

// A SealingStatus says which keys seal the secrets.
type SealingStatus struct {
	metav1.TypeMeta `json:",inline"`
	// Key is the id of the key that seals, empty before the first secret.
	Key string `json:"key,omitempty"`
	// Keys are the ids of the keys that this server has, and File is their file.
	Keys []string `json:"keys"`
	File string   `json:"file,omitempty"`
	// Secrets counts the secrets sealed with each key, by its id.
	Secrets map[string]int `json:"secrets"`
	// Unopened are the secrets that this server cannot open, in order, and why.
	Unopened []string `json:"unopened,omitempty"`
	// Problem says why the server cannot use its key file.
	Problem string `json:"problem,omitempty"`
}

// SealingKeys are sealing keys in the clear, written as in their file.
type SealingKeys struct {
	metav1.TypeMeta `json:",inline"`
	Text            string `json:"text,omitempty"`
	// Added are the ids of the keys that were new to the server; only the answer has
	// them.
	Added []string `json:"added,omitempty"`
}

// A Resealing makes a key the one that seals, and seals with it what other keys have
// sealed. It is also the answer.
type Resealing struct {
	metav1.TypeMeta `json:",inline"`
	// Key is the id of the key; empty in the request means the newest of the server.
	Key string `json:"key,omitempty"`
	// Lost says that no server has the key that seals now: the secrets sealed with it are
	// lost.
	Lost bool `json:"lost,omitempty"`
	// Resealed counts the secrets that were sealed again. Left are those that were not,
	// and why.
	Resealed int      `json:"resealed"`
	Left     []string `json:"left,omitempty"`
}

// SecretData is the data of a secret in the clear.
type SecretData struct {
	metav1.TypeMeta `json:",inline"`
	Data            map[string][]byte `json:"data"`
}

// Sealing manages the sealing keys of a server. Its methods return errors of package
// storage.
type Sealing interface {
	SealingStatus(context.Context) (SealingStatus, error)
	// SealingKeys returns the keys in the clear.
	SealingKeys() string
	// AddSealingKeys adds keys, or makes one if the text is empty, and returns the ids of
	// the keys that were new to the server.
	AddSealingKeys(text string) ([]string, error)
	// Reseal does the requested Resealing.
	Reseal(ctx context.Context, key string, lost bool) (Resealing, error)
	// SecretData returns the data of a secret.
	SecretData(namespace, name string) (map[string][]byte, error)
}

func (o Options) sealingStatus(w http.ResponseWriter, r *http.Request) error {
	status, err := o.Sealing.SealingStatus(r.Context())
	if err != nil {
		return err
	}
	status.TypeMeta = typeMeta("SealingStatus")
	rest.WriteJSON(w, http.StatusOK, status)
	return nil
}

func (o Options) sealingKeys(w http.ResponseWriter, _ *http.Request) error {
	rest.WriteJSON(w, http.StatusOK, SealingKeys{TypeMeta: typeMeta("SealingKeys"), Text: o.Sealing.SealingKeys()})
	return nil
}

func (o Options) addSealingKeys(w http.ResponseWriter, r *http.Request) error {
	var in SealingKeys
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	added, err := o.Sealing.AddSealingKeys(in.Text)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, SealingKeys{TypeMeta: typeMeta("SealingKeys"), Added: added})
	return nil
}

func (o Options) reseal(w http.ResponseWriter, r *http.Request) error {
	var in Resealing
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	done, err := o.Sealing.Reseal(r.Context(), in.Key, in.Lost)
	if err != nil {
		return err
	}
	done.TypeMeta = typeMeta("Resealing")
	rest.WriteJSON(w, http.StatusOK, done)
	return nil
}

func (o Options) secretData(w http.ResponseWriter, r *http.Request) error {
	data, err := o.Sealing.SecretData(r.PathValue("namespace"), r.PathValue("name"))
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, SecretData{TypeMeta: typeMeta("SecretData"), Data: data})
	return nil
}
