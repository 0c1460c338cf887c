// Package client reads and writes the objects of a Portolan server through its config API, for
// the command line and for tools. Package call says what its errors mean.
package client
