package invitation

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/url"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Prefix begins the text of every invitation.
const Prefix = "pmi1_"

// maxText is the longest accepted text.
const maxText = 8 << 10

// Invitation is all that an agent needs to join a machine to the mesh. It has a secret: the join
// token.
type Invitation struct {
	// API are the URLs of the servers' config API, https each. XDS are the addresses, host:port,
	// at which they take proxies with certificates of the mesh.
	API []string `json:"api"`
	XDS []string `json:"xds"`
	// Token is the join token, with the pin of the servers' roots if they have any of the mesh.
	Token string `json:"token"`
	// Namespace and ServiceAccount are the identity that the token proves.
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
	// Group is the WorkloadGroup in which the machine is registered; empty for none.
	Group string `json:"group,omitempty"`
}

// Validate returns all faults of an invitation.
func (i Invitation) Validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	if len(i.API) == 0 {
		fault("api: is missing: name the URL of a server, such as https://mesh.example.com:15080")
	}
	for _, server := range i.API {
		if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Hostname() == "" {
			fault("api %q: give a URL that begins with https://, since a machine sends its token there", server)
		}
	}
	if len(i.XDS) == 0 {
		fault("xds: is missing: name the address at which a server takes proxies, such as mesh.example.com:15012")
	}
	for _, address := range i.XDS {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			fault("xds %q: give host:port, such as mesh.example.com:15012", address)
		}
	}
	for _, f := range []struct{ field, value string }{{"token", i.Token}, {"namespace", i.Namespace}, {"serviceAccount", i.ServiceAccount}} {
		if f.value == "" {
			fault("%s: is missing", f.field)
		}
	}
	return faults.ErrorOrNil()
}

// String does not show the token, so that no log does.
func (i Invitation) String() string {
	return "an invitation to " + i.Namespace + "/" + i.ServiceAccount
}

// Text returns the invitation as one word. The error has the faults of Validate.
func (i Invitation) Text() (string, error) {
	if err := i.Validate(); err != nil {
		return "", err
	}
	body, err := json.Marshal(i)
	if err != nil {
		return "", err
	}
	body = binary.BigEndian.AppendUint32(body, crc32.ChecksumIEEE(body))
	return Prefix + base64.RawURLEncoding.EncodeToString(body), nil
}

// Parse reads the text of an invitation. The checksum in it finds a part that was lost in a copy.
// No error contains the text.
func Parse(text string) (Invitation, error) {
	var out Invitation
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), Prefix)
	if !ok {
		return out, errors.New("this is no invitation: it begins with " + Prefix + ", and portolan machine invite prints it")
	}
	damaged := errors.New("the invitation is damaged: a part of it is missing, or too much: copy the whole word that portolan machine invite printed")
	if len(rest) > maxText {
		return out, damaged
	}
	raw, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || len(raw) < 4 {
		return out, damaged
	}
	body, sum := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return out, damaged
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return Invitation{}, errors.New("the invitation has parts that this version does not know: use the agent of the same release as the server")
	}
	return out, out.Validate()
}
