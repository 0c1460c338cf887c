// Package authority is the certificate authority of the mesh: it signs the certificates by
// which workloads prove who they are, and says which roots everybody trusts.
//
// All servers share its keys: a sealed Secret in the store, or files of the operator. The
// first use creates the Secret; if several servers create it at once, one wins. The authority
// follows changes of the Secret or the files without a restart.
//
// A rotation replaces the root in two steps. During the rotation the new root signs, and both
// roots are trusted. Certificates come with the new root as cross-signed by the old one, so
// whoever trusts either root accepts everybody.
package authority
