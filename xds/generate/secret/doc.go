// Package secret makes the secrets of proxies: certificates with their keys, and the
// authorities that they trust. A proxy has those that its clusters and listeners need, and
// no others. They are its own: nobody shares them.
package secret
