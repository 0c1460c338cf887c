package schema

import (
	"strconv"

	"google.golang.org/grpc/codes"
	networking "istio.io/api/networking/v1alpha3"
)

func faultServed() fields {
	const unsupported = "is not supported: use "
	return serve().
		with("delay", serve("fixedDelay", "percent", "percentage").refuse("exponentialDelay", unsupported+"fixedDelay")).
		with("abort", serve("httpStatus", "grpcStatus", "percentage").refuse("http2Error", unsupported+"httpStatus or grpcStatus"))
}

// GRPCStatus returns the number of a gRPC status such as UNAVAILABLE; false for a name that
// gRPC does not have.
func GRPCStatus(name string) (uint32, bool) {
	var code codes.Code
	err := code.UnmarshalJSON([]byte(strconv.Quote(name)))
	return uint32(code), err == nil
}

// checkFault checks faults by Istio's rules. A fault without a percentage is off.
func checkFault(c checker, f *networking.HTTPFaultInjection) {
	if f == nil {
		return
	}
	if f.Delay == nil && f.Abort == nil {
		c.fail("is empty: set delay, abort or both")
	}
	if d := f.Delay; d != nil {
		at := c.at("delay")
		at.at("fixedDelay").duration(d.GetFixedDelay())
		if d.HttpDelayType == nil {
			at.warn("has no effect: set fixedDelay")
		}
		//lint:ignore SA1019 Istio takes the deprecated field still.
		percent := d.GetPercent()
		at.at("percent").percentage(float64(percent))
		at.faultShare(d.Percentage, percent != 0)
	}
	if a := f.Abort; a != nil {
		at := c.at("abort")
		switch e := a.ErrorType.(type) {
		case nil:
			at.warn("has no effect: set httpStatus or grpcStatus")
		case *networking.HTTPFaultInjection_Abort_HttpStatus:
			if e.HttpStatus < 200 || e.HttpStatus > 599 {
				at.at("httpStatus").fail("must be from 200 to 599, is %d", e.HttpStatus)
			}
		case *networking.HTTPFaultInjection_Abort_GrpcStatus:
			if _, ok := GRPCStatus(e.GrpcStatus); !ok {
				at.at("grpcStatus").fail("%q is not the name of a gRPC status: use one such as UNAVAILABLE", e.GrpcStatus)
			}
		}
		at.faultShare(a.Percentage, false)
	}
}

// otherwise says that an older field has the percentage.
func (c checker) faultShare(p *networking.Percent, otherwise bool) {
	switch v := p.GetValue(); {
	case p == nil && !otherwise:
		c.warn("has no percentage and affects no request: set percentage.value")
	case v != 0 && !(v >= 0.0001 && v <= 100): // nor is NaN
		c.at("percentage", "value").fail("must be 0, or from 0.0001 to 100, is %v", v)
	}
}
