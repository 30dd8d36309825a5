package driver

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// codeOf is the project's only table of kinds and codes.
var codeOf = map[fault.Kind]codes.Code{
	fault.InvalidArgument: codes.InvalidArgument,
	fault.NotFound:        codes.NotFound,
	fault.Conflict:        codes.AlreadyExists,
	fault.Exhausted:       codes.ResourceExhausted,
	fault.Precondition:    codes.FailedPrecondition,
	fault.Busy:            codes.Aborted,
	fault.OutOfRange:      codes.OutOfRange,
	fault.Denied:          codes.PermissionDenied,
	fault.StalePage:       codes.Aborted,
	fault.Unsupported:     codes.Unimplemented,
	fault.Unavailable:     codes.Unavailable,
	fault.Uncertain:       codes.Unavailable,
}

// toStatus converts the error of a handler into a gRPC status.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	// Only a bare status passes: the generated Unimplemented stubs return one. A wrapped status belongs to a cloud that itself
	// speaks gRPC.
	if _, bare := err.(interface{ GRPCStatus() *status.Status }); bare { //nolint:errorlint // a wrapped one must not match
		return err
	}
	code, ok := codeOf[fault.Of(err)]
	switch {
	case ok:
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	default:
		code = codes.Internal
	}
	return status.Error(code, fault.Text(err))
}

// maxMessage is the maximum length of a message. The API server refuses a VolumeAttachment with an error of more than 1,024 bytes, which
// begins with the code; then the attacher cannot store any error of it, and the pod's events have only a timeout.
const maxMessage = 1024 - len("rpc error: code = FailedPrecondition desc = ")

// short takes the middle out of a long message: the reason is at its beginning, and what to do about it often at its end.
func short(err error) error {
	const gap = " ... "
	const half = (maxMessage - len(gap)) / 2
	s := status.Convert(err)
	text := s.Message()
	if len(text) <= maxMessage {
		return err
	}
	return status.Error(s.Code(), strings.ToValidUTF8(text[:half]+gap+text[len(text)-half:], ""))
}

// Final reports whether an orchestrator takes an error for final: it then need not undo the call. Kubernetes takes each code for
// final but these (isFinalError in its pkg/volume/csi).
func Final(err error) bool {
	switch status.Code(toStatus(err)) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// mapErrors is the interceptor that creates every status of this driver, and counts the reasons of refusals.
func (o observer) mapErrors(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, req)
	if err != nil {
		if reason := fault.ReasonOf(err); reason != fault.NoReason {
			o.metrics.refused.WithLabelValues(string(reason)).Inc()
		}
		return nil, toStatus(err)
	}
	return answer, nil
}
