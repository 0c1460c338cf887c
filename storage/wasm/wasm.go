// Package wasm says where the module of a WasmPlugin comes from: a file on the machine of the
// proxy, or a web server from which the servers of the mesh fetch it.
package wasm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Source is where a module comes from. It is comparable. Either File or URL is set.
type Source struct {
	// File is an absolute path on the machine of the proxy.
	File string
	// URL is an address of http or https.
	URL string
	// Sum is the SHA-256 sum of the module, in lower-case hexadecimal digits. A file need not have one.
	Sum string
}

// SourceOf reads the url and the sha256 of a WasmPlugin. The errors say what to do, each at the
// field that it belongs to; the result is valid if there are none.
func SourceOf(address, sum string) (out Source, atURL, atSum error) {
	if atSum = checkSum(sum); atSum == nil {
		out.Sum = strings.ToLower(sum)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		// An image with a port, such as localhost:5000/a, is no URL either.
		return Source{}, fmt.Errorf("is neither file:///PATH nor a URL of http or https: %w", err), atSum
	case u.Scheme == "file":
		if u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) != u.Path || u.RawQuery != "" || u.Fragment != "" {
			return Source{}, errors.New("must be file:// and an absolute path on the machine of the proxy, such as file:///etc/envoy/plugin.wasm"), atSum
		}
		out.File = u.Path
		return out, nil, atSum
	case u.Scheme == "http" || u.Scheme == "https":
		switch {
		case u.Hostname() == "":
			return Source{}, errors.New("names no host"), atSum
		case u.User != nil:
			return Source{}, errors.New("has a user or password, which everybody could read here: serve the module without"), atSum
		case u.Fragment != "":
			return Source{}, errors.New("has a fragment (#), which no web server gets: leave it out"), atSum
		case sum == "":
			atSum = errors.New("is needed with http and https: servers fetch the module once and send only what has this sum; write what sha256sum says of the module")
		}
		out.URL = address
		return out, nil, atSum
	}
	return Source{}, errors.New("names an image or a scheme that is not served: take the module (plugin.wasm) out of the image, and serve it by http or https with its sha256, or put it on the machines as file:///PATH"), atSum
}

func checkSum(sum string) error {
	if raw, err := hex.DecodeString(sum); sum != "" && (err != nil || len(raw) != 32) {
		return fmt.Errorf("must be 64 hexadecimal digits, is %q", sum)
	}
	return nil
}
