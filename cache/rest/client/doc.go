// Package client calls the config API of a Portolan server, for the command
// line and for tools.
//
// Errors say what became of a call. A *apierrors.StatusError (of
// k8s.io/apimachinery/pkg/api/errors, whose IsConflict, IsNotFound and others
// tell them apart) is the server's answer, details.causes included. An
// *UnreachableError means that there was none.
package client
