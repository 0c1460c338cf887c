// Package secret makes the secrets of proxies: certificates with their keys, and CA
// certificates. A proxy has only those that its clusters and listeners need. They are its
// own, shared with no other proxy.
package secret
