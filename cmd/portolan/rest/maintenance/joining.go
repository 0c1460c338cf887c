package maintenance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// InvitationsPath takes a POST of an Invitation, and returns it with the token.
	InvitationsPath = Path + "/invitations"
	// JoinPath takes a POST of a JoinRequest with such a token as bearer, and answers
	// with an Admission.
	JoinPath = Path + "/join"
)

// An Invitation requests a token with which a server joins the store as one member.
type Invitation struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	PeerURL         string `json:"peerURL"`
	// ClientURL is where other servers reach the member; empty is the host of PeerURL
	// with the usual port.
	ClientURL string `json:"clientURL,omitempty"`
	// TTL is a duration such as 1h.
	TTL     string   `json:"ttl,omitempty"`
	Sources []string `json:"sources,omitempty"`

	// Only the answer has the fields below. Token is shown this once.
	Token     string    `json:"token,omitempty"`
	TokenName string    `json:"tokenName,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
	// Roots are the authorities that verify the server's certificate, in PEM; empty if
	// the certificate comes from files.
	Roots string `json:"roots,omitempty"`
}

// A JoinRequest requests the membership that a token is for.
type JoinRequest struct {
	metav1.TypeMeta `json:",inline"`
	// CSR is a certificate request without names, in PEM.
	CSR string `json:"csr"`
}

// An Admission has what a joining member needs.
type Admission struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	PeerURL         string `json:"peerURL"`
	ClientURL       string `json:"clientURL"`
	// Join are the client URLs of the voters.
	Join []string `json:"join"`
	// Certificate is the certificate of the member. Authority and AuthorityKey are the
	// authority of the store's members. All are in PEM.
	Certificate  string `json:"certificate"`
	Authority    string `json:"authority"`
	AuthorityKey string `json:"authorityKey"`
	// SealingKeys are written as in a server's key file.
	SealingKeys string `json:"sealingKeys,omitempty"`
}
