// Package credentials has the paths of the config API by which people and machines get
// credentials: users and their tokens, the providers to log in with, join tokens, certificates.
// It also answers who a caller is, and what the caller may do.
package credentials
