// Package access has the commands about who may do what: contexts, logins, users, rights, join
// tokens and certificates, and the bootstrap configuration of proxies.
package access
