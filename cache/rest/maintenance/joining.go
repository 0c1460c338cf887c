package maintenance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// InvitationsPath takes a POST of an Invitation, and answers it with the token.
	InvitationsPath = Path + "/invitations"
	// JoinPath takes a POST of a JoinRequest with such a token as bearer, and answers an
	// Admission.
	JoinPath = Path + "/join"
	// RootsPath answers a GET with Roots. It asks for no right.
	RootsPath = "/apis/portolan.io/v1/roots"
)

// An Invitation asks for a token by which a server joins the store as one member.
type Invitation struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	PeerURL         string `json:"peerURL"`
	// ClientURL is where other servers reach the member; empty stands for the host of
	// PeerURL with the usual port.
	ClientURL string `json:"clientURL,omitempty"`
	// TTL is a duration such as 1h.
	TTL     string   `json:"ttl,omitempty"`
	Sources []string `json:"sources,omitempty"`

	// The following are of the answer. Token is shown this once.
	Token     string    `json:"token,omitempty"`
	TokenName string    `json:"tokenName,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
	// Roots are the authorities by which the server's certificate is to be verified, in
	// PEM; empty where it has one of files.
	Roots string `json:"roots,omitempty"`
}

// Roots are the roots of a server's certificate, in PEM; none if its certificate comes from
// a file. The client verifies them by a token.
type Roots struct {
	metav1.TypeMeta `json:",inline"`
	Roots           string `json:"roots,omitempty"`
}

// A JoinRequest asks for the place that a token is for.
type JoinRequest struct {
	metav1.TypeMeta `json:",inline"`
	// CSR is a certificate request without names, in PEM.
	CSR string `json:"csr"`
}

// An Admission is what a member needs that joins the store.
type Admission struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	PeerURL         string `json:"peerURL"`
	ClientURL       string `json:"clientURL"`
	// Join are the client URLs of the voters.
	Join []string `json:"join"`
	// Certificate is the certificate of the member, and Authority and AuthorityKey are the
	// authority of the store's members, in PEM.
	Certificate  string `json:"certificate"`
	Authority    string `json:"authority"`
	AuthorityKey string `json:"authorityKey"`
	// SealingKeys are as in the file of a server.
	SealingKeys string `json:"sealingKeys,omitempty"`
}
