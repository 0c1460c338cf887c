// Command portolan-agent joins a machine to the mesh and keeps it there: it gets and renews the
// machine's certificate, serves it to the proxy, relays the configuration, and runs the Envoy.
//
//	portolan-agent join TOKEN   the first certificate, and the file of the agent
//	portolan-agent run          everything else, until SIGTERM
//
// It links neither the store nor what makes configuration: a test of its imports holds that.
package main
