package yandex

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

// refusal is one of the API's refusals. Rules.Codes can replace its code by its name.
type refusal struct {
	name string
	code codes.Code
	text string
}

func (r refusal) Error() string { return r.text }

// with fills in what the words are about.
func (r refusal) with(what ...any) refusal {
	r.text = fmt.Sprintf(r.text, what...)
	return r
}

// state is the form in which the real API says that something cannot be done now.
const stateForm = "%s %q has an invalid state for this operation: %s"

// The refusals of the real API. Where "assumed" is said, no public source quotes the code or the words, so a
// client must not depend on them.
var (
	attachedToInstance = refusal{"attached", codes.FailedPrecondition, "Disk %q has an invalid state for this operation: attached to instance"}
	resizeAttached     = refusal{"resize_attached", codes.FailedPrecondition, "Disk %q has an invalid state for this operation: attached to non-stopped instance"}
	tooManyDisks       = refusal{"too_many_disks", codes.ResourceExhausted, "The limit on maximum number of attached disks and filesystems has exceeded."}
	tooManyOperations  = refusal{"too_many_operations", codes.ResourceExhausted, "The limit on maximum number of active operations has exceeded."}

	denied = refusal{"denied", codes.PermissionDenied, "Permission denied to %s"} // yandex-cloud/python-sdk#9, yandex-cloud/docs#299

	wrongState     = refusal{"wrong_state", codes.FailedPrecondition, stateForm}                                                                        // assumed but for its form
	busyInstance   = refusal{"busy_instance", codes.FailedPrecondition, "Instance %q has an invalid state for this operation: has a running operation"} // assumed
	busyDisk       = refusal{"busy_disk", codes.FailedPrecondition, "Disk %q has an invalid state for this operation: has a running operation"}         // assumed
	booting        = refusal{"booting", codes.FailedPrecondition, "Instance %q has an invalid state for this operation: guest is not ready"}            // assumed
	notFound       = refusal{"not_found", codes.NotFound, "%s %s not found"}                                                                            // assumed
	noOperation    = refusal{"no_operation", codes.NotFound, "Operation %s not found"}                                                                  // assumed
	nameTaken      = refusal{"name_taken", codes.AlreadyExists, "%s with name %s already exists"}                                                       // assumed
	badArgument    = refusal{"bad_argument", codes.InvalidArgument, "Request validation error: %s"}                                                     // assumed
	otherZone      = refusal{"other_zone", codes.FailedPrecondition, "Disk %s is in zone %s, instance %s is in zone %s"}                                // assumed
	notAttached    = refusal{"not_attached", codes.InvalidArgument, "Request validation error: Can't find disk in instance %q"}                         // deckhouse/yandex-csi-driver#6
	bootDisk       = refusal{"boot_disk", codes.FailedPrecondition, "Boot disk %q cannot be detached"}                                                  // assumed
	deviceTaken    = refusal{"device_taken", codes.InvalidArgument, "Device name %q is already in use on instance %q"}                                  // assumed
	tooManyNumbers = refusal{"quota", codes.ResourceExhausted, "Quota limit %s exceeded"}                                                               // assumed
	badToken       = refusal{"bad_token", codes.Unauthenticated, "The token is invalid"}                                                                // assumed
	badJWT         = refusal{"bad_jwt", codes.Unauthenticated, "JWT is invalid: %s"}                                                                    // assumed
	failedInside   = refusal{"internal", codes.Internal, "Internal error"}                                                                              // assumed
)

// refuse makes the answer to a call that is refused. The lock is held.
func (c *Cloud) refuse(why refusal) error {
	why = c.worded(why)
	return rpc.Error(why.code, why.text)
}

// worded applies the rule that replaces codes.
func (c *Cloud) worded(why refusal) refusal {
	why.code = namedCode(c.rules.Codes[why.name], why.code)
	return why
}

// namedCode returns the code with a name such as "RESOURCE_EXHAUSTED".
func namedCode(name string, otherwise codes.Code) codes.Code {
	var code codes.Code
	if name == "" || code.UnmarshalJSON(fmt.Appendf(nil, "%q", name)) != nil {
		return otherwise
	}
	return code
}
