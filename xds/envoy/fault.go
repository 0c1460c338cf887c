package envoy

import (
	"math"
	"time"

	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// Fault describes the faults that a route injects. A request may be delayed and then
// aborted; the two percentages are independent.
type Fault struct {
	Delay *Delay // nil for none
	Abort *Abort // nil for none
}

// Delay delays a share of the requests.
type Delay struct {
	Duration   time.Duration
	Percentage float64 // from 0 to 100
}

// Abort answers a share of the requests instead of the upstream.
type Abort struct {
	// HTTPStatus is the status of the answer; if it is 0, GRPCStatus is.
	HTTPStatus, GRPCStatus uint32
	Percentage             float64 // from 0 to 100
}

// FaultFilter makes the filter that injects routes' faults. It has no fault of its own.
func FaultFilter() *hcmv3.HttpFilter { return httpFilter(FaultName, &faultv3.HTTPFault{}) }

// perRoute returns the filter's configuration for one route, nil for no fault.
func (f *Fault) perRoute() map[string]*anypb.Any {
	if f == nil {
		return nil
	}
	out := &faultv3.HTTPFault{}
	if d := f.Delay; d != nil {
		out.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(d.Duration)},
			Percentage:         fractionalPercent(d.Percentage),
		}
	}
	if a := f.Abort; a != nil {
		out.Abort = &faultv3.FaultAbort{Percentage: fractionalPercent(a.Percentage)}
		if a.HTTPStatus != 0 {
			out.Abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: a.HTTPStatus}
		} else {
			out.Abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: a.GRPCStatus}
		}
	}
	return map[string]*anypb.Any{FaultName: message.Pack(out)}
}

func fractionalPercent(percentage float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{
		Numerator: uint32(math.Round(percentage * 10_000)), Denominator: typev3.FractionalPercent_MILLION,
	}
}
