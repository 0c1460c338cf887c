// Package client calls the config API of a Portolan server, for the command
// line and for tools.
//
// Errors say how a call ended. A *apierrors.StatusError is the server's answer,
// details.causes included; IsConflict, IsNotFound and others in
// k8s.io/apimachinery/pkg/api/errors distinguish them. An *UnreachableError means that
// there was no answer.
package client
