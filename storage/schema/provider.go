package schema

import "google.golang.org/protobuf/types/known/durationpb"

// CheckServicePort returns the faults of a service, [namespace/]host, of its port and of the time
// to wait for it, that stand at a path outside an object, such as in MeshConfig; nil for none.
func CheckServicePort(path, service string, port uint32, timeout *durationpb.Duration) error {
	r := &Report{}
	c := r.at(path)
	if at := c.at("service"); service == "" {
		at.fail("is missing: write the host of a service, or namespace/host")
	} else if _, host := at.namespacedHost(service); isWildcard(host) {
		at.fail("%q stands for many hosts: write the host of one service", service)
	}
	c.at("port").port(port)
	c.at("timeout").duration(timeout)
	return r.faults.ErrorOrNil()
}

// CheckHeaderName returns the fault of a header's name that stands at a path outside an object; nil
// for none.
func CheckHeaderName(path, name string) error {
	r := &Report{}
	r.at(path).headerName(name)
	return r.faults.ErrorOrNil()
}

// CheckDuration returns the fault of a duration that stands at a path outside an object; nil for none.
func CheckDuration(path string, d *durationpb.Duration) error {
	r := &Report{}
	r.at(path).duration(d)
	return r.faults.ErrorOrNil()
}
