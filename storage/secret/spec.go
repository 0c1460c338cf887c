package secret

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/storage/seal"
)

// The types of secrets that have a meaning. Every other is kept like Opaque.
const (
	Opaque = "Opaque"
	TLS    = "kubernetes.io/tls"
	// CertificateAuthority is the type of the secret that has the keys of the mesh's
	// certificate authority. Only servers write it, and no proxy gets it.
	CertificateAuthority = "portolan.io/certificate-authority"
	// HelmRelease is the type of the secrets in which Helm keeps its releases. None is stored.
	HelmRelease = "helm.sh/release.v1"
)

// Spec is the content of a Secret. It stands at the top level of the document.
type Spec struct {
	// Type is Opaque unless set. It never changes.
	Type string `json:"type,omitempty"`
	// Immutable says that the data never changes again.
	Immutable *bool `json:"immutable,omitempty"`
	// Data and StringData are the entries of a request, in the clear. An entry of
	// StringData overrides one of Data.
	Data       map[string][]byte `json:"data,omitempty"`
	StringData map[string]string `json:"stringData,omitempty"`
	// Sealed is the stored form of the data. Servers make it.
	Sealed *Sealed `json:"sealed,omitempty"`
}

// Sealed is the data as it is stored.
type Sealed struct {
	// Content distinguishes this data from any other: it is random, and changes with the
	// data alone.
	Content string `json:"content"`
	// Entries are the names of the entries, in order, with their sizes.
	Entries []Entry `json:"entries,omitempty"`
	// Certificates describes the certificates among the entries.
	Certificates []Certificate `json:"certificates,omitempty"`
	// Box holds the sealed entries. Documents lack it.
	Box *seal.Box `json:"box,omitempty"`
}

// Entry is the public part of an entry.
type Entry struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Certificate has the public fields of a certificate.
type Certificate struct {
	// Entry is the name of the entry that has the certificate.
	Entry   string `json:"entry"`
	Subject string `json:"subject,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	Serial  string `json:"serial,omitempty"`
	// Names are its alternative names: DNS names, addresses and URIs.
	Names     []string  `json:"names,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	// Authority says that it may sign others.
	Authority bool `json:"authority,omitempty"`
}

// TopLevel implements config.TopLevel.
func (*Spec) TopLevel() {}

// SelectableFields returns the fields by which lists and watches may select, beside name and
// namespace.
func (s *Spec) SelectableFields() map[string]string { return map[string]string{"type": s.Type} }

// Shown implements config.Veiled: it is the spec without the data and the box.
func (s *Spec) Shown() any {
	out := &Spec{Type: s.Type, Immutable: s.Immutable}
	if s.Sealed != nil {
		sealed := *s.Sealed
		sealed.Box = nil
		out.Sealed = &sealed
	}
	return out
}

// CheckStored implements config.Veiled: data must not be stored in the clear.
func (s *Spec) CheckStored() error {
	switch {
	case len(s.Data)+len(s.StringData) > 0:
		return errors.New("its data is in the clear: it must be sealed before it is stored")
	case s.Sealed == nil || s.Sealed.Box == nil:
		return errors.New("it has no data")
	}
	return nil
}

// Entries returns the data of a request, with StringData.
func (s *Spec) Entries() map[string][]byte {
	out := maps.Clone(s.Data)
	if out == nil {
		out = make(map[string][]byte, len(s.StringData))
	}
	for name, text := range s.StringData {
		out[name] = []byte(text)
	}
	return out
}

// InClear says whether the spec has data of a request.
func (s *Spec) InClear() bool { return s.Data != nil || s.StringData != nil }

// Names returns the names of entries, in order.
func Names(entries map[string][]byte) []string { return slices.Sorted(maps.Keys(entries)) }

// Pair names the entries of the certificate and the key that proxies get; false if the
// secret has none. The names in Opaque secrets go first, as in Istio.
func (s *Spec) Pair() (cert, key string, ok bool) {
	for _, pair := range [...][2]string{{Cert, Key}, {TLSCert, TLSKey}} {
		if s.has(pair[1]) && s.certifies(pair[0]) {
			return pair[0], pair[1], true
		}
	}
	return "", "", false
}

// Roots names the entry of the certificates of authorities; false if the secret has none.
func (s *Spec) Roots() (name string, ok bool) {
	for _, name := range [...]string{Authority, TLSAuthority} {
		if s.certifies(name) {
			return name, true
		}
	}
	return "", false
}

// Revoked names the entry of the list of revoked certificates; false if the secret has
// none.
func (s *Spec) Revoked() (name string, ok bool) {
	for _, name := range [...]string{Revoked, TLSRevoked} {
		if s.has(name) {
			return name, true
		}
	}
	return "", false
}

// has says whether a sealed secret has an entry for proxies.
func (s *Spec) has(name string) bool {
	return s.Sealed != nil && s.Type != CertificateAuthority && slices.ContainsFunc(s.Sealed.Entries, func(e Entry) bool { return e.Name == name })
}

// certifies says whether an entry of a sealed secret has a certificate for proxies.
func (s *Spec) certifies(name string) bool {
	return s.Sealed != nil && s.Type != CertificateAuthority && slices.ContainsFunc(s.Sealed.Certificates, func(c Certificate) bool { return c.Entry == name })
}
