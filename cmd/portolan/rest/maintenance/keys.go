package maintenance

import (
	"context"
	"crypto/hpke"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
)

// KeysPath takes a POST of SealedKeys with a Recipient, and answers with SealedKeys: the keys
// that belong into a backup. It is Private.
const KeysPath = Path + "/keys"

// SealedKeys are escrow.Keys that only the recipient can open.
type SealedKeys struct {
	metav1.TypeMeta `json:",inline"`
	// Recipient is a public key of HPKE (RFC 9180) with the suite of Suite.
	Recipient []byte `json:"recipient,omitempty"`
	// Sealed are the keys in JSON, sealed for the recipient.
	Sealed []byte `json:"sealed,omitempty"`
}

// keysInfo binds sealed keys to their purpose.
const keysInfo = "portolan keys of a backup"

// Suite returns the algorithms of SealedKeys.
func Suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.MLKEM768X25519(), hpke.HKDFSHA256(), hpke.AES256GCM()
}

// OpenKeys opens keys with the private key of their recipient.
func OpenKeys(sealed []byte, recipient hpke.PrivateKey) (keys escrow.Keys, err error) {
	_, kdf, aead := Suite()
	plain, err := hpke.Open(recipient, kdf, aead, []byte(keysInfo), sealed)
	if err == nil {
		err = json.Unmarshal(plain, &keys)
	}
	return keys, err
}

// Keyring has the keys of a server that belong into a backup.
type Keyring interface {
	// BackupKeys returns the keys as they are now.
	BackupKeys(ctx context.Context) (escrow.Keys, error)
}

func (o Options) backupKeys(w http.ResponseWriter, r *http.Request) error {
	var in SealedKeys
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	kem, kdf, aead := Suite()
	recipient, err := kem.NewPublicKey(in.Recipient)
	if err != nil {
		return fmt.Errorf("%w: recipient: %w", storage.ErrInvalid, err)
	}
	keys, err := o.Keys.BackupKeys(r.Context())
	if err != nil {
		return err
	}
	plain, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	sealed, err := hpke.Seal(recipient, kdf, aead, []byte(keysInfo), plain)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	rest.WriteJSON(w, http.StatusOK, SealedKeys{TypeMeta: typeMeta("SealedKeys"), Sealed: sealed})
	return nil
}
