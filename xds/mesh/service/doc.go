// Package service is the arithmetic of services: those of one host, and the ports and
// addresses that they use. It does not know the mesh.
package service
