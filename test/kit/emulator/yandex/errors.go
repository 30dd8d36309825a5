package yandex

import (
	"fmt"
	"regexp"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

// refusal is one of the API's refusals. Rules.Codes can replace its code by its name.
type refusal struct {
	name string
	code codes.Code
	text string
}

// with fills in what the words are about.
func (r refusal) with(what ...any) *refusal {
	r.text = fmt.Sprintf(r.text, what...)
	return &r
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
func (c *Cloud) refuse(why *refusal) error {
	worded := c.worded(*why)
	return rpc.Error(worded.code, worded.text)
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

// What the descriptions of the services allow. They are comments there, so they stand here once more.
var (
	resourceName = regexp.MustCompile(`^([a-z]([-_a-z0-9]{0,61}[a-z0-9])?)?$`)
	labelKey     = regexp.MustCompile(`^[a-z][-_./\\@0-9a-z]*$`)
	labelValue   = regexp.MustCompile(`^[-_./\\@0-9a-z]*$`)
	deviceName   = regexp.MustCompile(`^[a-z][a-z0-9-_]{0,19}$`)
)

const (
	longestID          = 50
	longestDescription = 256
	longestLabel       = 63
	mostLabels         = 64
)

// bad is the refusal of a field.
func bad(field, format string, args ...any) *refusal {
	return badArgument.with(field + ": " + fmt.Sprintf(format, args...))
}

// checkID checks a field that is required and holds an id.
func checkID(field, id string) *refusal {
	if id == "" {
		return bad(field, "Field is required")
	}
	return checkOptionalID(field, id)
}

func checkOptionalID(field, id string) *refusal {
	if len(id) > longestID {
		return bad(field, "Size must be less than or equal to %d", longestID)
	}
	return nil
}

func (c *Cloud) checkFolder(id string) *refusal {
	if why := checkID("folder_id", id); why != nil {
		return why
	}
	if id != c.Folder {
		return denied.with("folder " + id)
	}
	return nil
}

// checkNaming checks what disks and snapshots both have.
func checkNaming(name, description string, labels map[string]string) *refusal {
	switch {
	case !resourceName.MatchString(name):
		return bad("name", "Field does not match the pattern /|[a-z]([-_a-z0-9]{0,61}[a-z0-9])?/")
	case len(description) > longestDescription:
		return bad("description", "Size must be less than or equal to %d", longestDescription)
	case len(labels) > mostLabels:
		return bad("labels", "Number of elements must be less than or equal to %d", mostLabels)
	}
	for key, value := range labels {
		switch {
		case len(key) > longestLabel || !labelKey.MatchString(key):
			return bad("labels", "Key %q does not match the pattern or is longer than %d", key, longestLabel)
		case len(value) > longestLabel || !labelValue.MatchString(value):
			return bad("labels", "Value %q does not match the pattern or is longer than %d", value, longestLabel)
		}
	}
	return nil
}

func checkDevice(name string) *refusal {
	if name != "" && !deviceName.MatchString(name) {
		return bad("device_name", "Field does not match the pattern /[a-z][a-z0-9-_]{,19}/")
	}
	return nil
}

// checkMask checks which fields are to be updated. Without a mask the real API would reset all others, which
// nobody wants: it is refused here.
func checkMask(mask *fieldmaskpb.FieldMask, known ...string) *refusal {
	if len(mask.GetPaths()) == 0 {
		return bad("update_mask", "Field is required")
	}
	for _, path := range mask.GetPaths() {
		if !slices.Contains(known, path) {
			return bad("update_mask", "Unknown field %q", path)
		}
	}
	return nil
}
