package yandex

import (
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

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
	why := badArgument.with(field + ": " + fmt.Sprintf(format, args...))
	return &why
}

// first returns the first refusal that there is.
func first(all ...*refusal) *refusal {
	for _, why := range all {
		if why != nil {
			return why
		}
	}
	return nil
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
		why := denied.with("folder " + id)
		return &why
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
		if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+path+" ") {
			return bad("update_mask", "Unknown field %q", path)
		}
	}
	return nil
}
