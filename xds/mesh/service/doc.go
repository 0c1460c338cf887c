// Package service computes with the services of one host, their ports and their
// addresses. It does not know the mesh.
package service
