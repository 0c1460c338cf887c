// Package authority is the certificate authority of the mesh: it signs the certificates by
// which workloads prove who they are, and says which roots everybody trusts.
//
// Its keys are one Secret of the store, sealed as secrets are and the same on all servers,
// or files of the operator. The first use makes the Secret; where several servers make it
// at once, one wins. A change of the Secret or of the files is followed without a restart.
//
// A rotation replaces the root in two steps. While it lasts the new root signs, both roots
// are trusted, and certificates carry one of the new root that the old one has signed: who
// trusts either root accepts everybody.
package authority
