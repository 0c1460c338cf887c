package command

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// peerSource is another control plane in the form of --config-source.
type peerSource struct {
	address   string
	secure    bool
	files     dial.Files
	tokenFile string
	variant   mcp.Variant
}

// peerParameters lists the parameters that a peer's URL may have.
var peerParameters = []string{"ca", "cert", "key", "server-name", "tls", "token", "variant"}

// parsePeer parses the URL of a peer: xds://HOST:PORT, with its files as parameters. It uses
// TLS for a peer on another machine, or if a parameter asks for it.
func parsePeer(text string) (*peerSource, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != strings.TrimSuffix(serve.PeerScheme, "://") || u.Host == "" || u.Path != "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not of the form xds://HOST:PORT, with parameters such as ?ca=FILE&token=FILE", text)
	}
	given, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%s: its parameters: %w", text, err)
	}
	for name, values := range given {
		if !slices.Contains(peerParameters, name) {
			return nil, fmt.Errorf("%s: there is no parameter %q: use %s", text, name, strings.Join(peerParameters, ", "))
		}
		if len(values) > 1 || values[0] == "" {
			return nil, fmt.Errorf("%s: the parameter %s takes one value", text, name)
		}
	}
	host, _, _ := net.SplitHostPort(u.Host)
	p := &peerSource{
		address: u.Host, tokenFile: given.Get("token"), variant: mcp.Variant(given.Get("variant")),
		files: dial.Files{CA: given.Get("ca"), Cert: given.Get("cert"), Key: given.Get("key"), ServerName: given.Get("server-name")},
	}
	p.secure = !mcp.Local(host) || p.files != dial.Files{}
	switch value := given.Get("tls"); {
	case value == "", value == "true":
		p.secure = p.secure || value == "true"
	default:
		return nil, fmt.Errorf("%s: the parameter tls is true or left out: a peer on another machine is followed by TLS alone", text)
	}
	return p, p.check(text)
}

// check returns what cannot be used, nil if everything can.
func (p *peerSource) check(text string) error {
	options := p.options()
	if err := options.Validate(); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if (p.files.Cert == "") != (p.files.Key == "") {
		return fmt.Errorf("%s: the parameter cert goes with key: give both or none", text)
	}
	if _, err := p.files.Config(); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if p.tokenFile != "" {
		if _, err := p.token(); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// token reads the current token.
func (p *peerSource) token() (string, error) {
	content, err := os.ReadFile(p.tokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s is empty, or has more than a token", p.tokenFile)
	}
	return token, nil
}

func (p *peerSource) options() mcp.Options {
	o := mcp.Options{Address: p.address, Variant: p.variant}
	if p.secure {
		o.TLS = func() (*tls.Config, error) { return p.files.Config() }
	}
	if p.tokenFile != "" {
		o.Token = p.token
	}
	return o
}
