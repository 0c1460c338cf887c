// Package call sends requests to the config API of a Portolan server and reads its answers. It
// knows no objects: package client, which does, is built on it.
//
// Errors say how a call ended. A *apierrors.StatusError is the server's answer,
// details.causes included; IsConflict, IsNotFound and others in
// k8s.io/apimachinery/pkg/api/errors distinguish them. An *UnreachableError means that
// there was no answer.
package call
