package fault

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Reason is a stable short code of a refusal that an operator has to act on. An error wraps it instead of a Kind:
//
//	fmt.Errorf("the droplet has no free slot: %w: %w", fault.NoSlot, err)
//
// internal/driver puts the code before the message of the RPC and counts it; docs/troubleshooting.md has a heading for each.
type Reason string

// The reasons, with their codes.
const (
	// NoReason is what ReasonOf returns for an error without a reason.
	NoReason Reason = ""

	// Of the cloud and its account.

	// AccessDenied: the cloud does not accept the credentials, or a right is missing.
	AccessDenied Reason = "CB-ACCESS-DENIED"
	// Quota: a quota of the account, or of the object, is used up.
	Quota Reason = "CB-QUOTA"
	// NoZone: none of the zones, regions or nodes that the request accepts can serve it.
	NoZone Reason = "CB-NO-ZONE"
	// WrongZone: the volume and the node are in different zones.
	WrongZone Reason = "CB-WRONG-ZONE"
	// NoSlot: the node is at its attach limit.
	NoSlot Reason = "CB-NO-SLOT"
	// AttachedElsewhere: the volume is attached to another node.
	AttachedElsewhere Reason = "CB-ATTACHED-ELSEWHERE"
	// GrowDetach: the volume grows, or shows its growth, only after it was detached.
	GrowDetach Reason = "CB-GROW-DETACH"

	// Of volumes and their sources.

	// VolumeInUse: the volume is attached or in use, so it is not deleted or moved, or not copied by a class that demands a detached one.
	VolumeInUse Reason = "CB-VOLUME-IN-USE"
	// VolumeDamaged: the volume's record or data is damaged, or the cloud reports that it is broken.
	VolumeDamaged Reason = "CB-VOLUME-DAMAGED"
	// SourceElsewhere: the source of a copy is in a place where the copy cannot be created.
	SourceElsewhere Reason = "CB-SOURCE-ELSEWHERE"
	// NoCopies: the pool has no snapshots and clones.
	NoCopies Reason = "CB-NO-COPIES"
	// PoolFull: the pool has too little space.
	PoolFull Reason = "CB-POOL-FULL"
	// PoolUnusable: the pool is missing or unusable.
	PoolUnusable Reason = "CB-POOL-UNUSABLE"

	// Of the disk on the node.

	// DeviceMissing: the volume's disk does not appear on the node.
	DeviceMissing Reason = "CB-DEVICE-MISSING"
	// DeviceIdentity: the disk that should be the volume's does not prove that it is.
	DeviceIdentity Reason = "CB-DEVICE-IDENTITY"
	// DeviceTooSmall: the disk is smaller than the volume.
	DeviceTooSmall Reason = "CB-DEVICE-TOO-SMALL"
	// DeviceUnreadable: the disk returns errors.
	DeviceUnreadable Reason = "CB-DEVICE-UNREADABLE"
	// DeviceInUse: the disk is mounted or open elsewhere, so it is not staged.
	DeviceInUse Reason = "CB-DEVICE-IN-USE"
	// UnstageInUse: a process or a mount on the node still uses the volume.
	UnstageInUse Reason = "CB-UNSTAGE-IN-USE"

	// Of the format gate. The alert CloudblockFormatRefused matches CB-FORMAT-.

	// FormatContent: the disk has another filesystem, partitions or a known signature.
	FormatContent Reason = "CB-FORMAT-OTHER-CONTENT"
	// FormatDamaged: the contents of the disk contradict each other.
	FormatDamaged Reason = "CB-FORMAT-DAMAGED"
	// FormatNotBlank: the disk has no known signature, but it is not blank or was written to.
	FormatNotBlank Reason = "CB-FORMAT-NOT-BLANK"
	// FormatForbidden: the disk has no filesystem, and this request must not format it.
	FormatForbidden Reason = "CB-FORMAT-FORBIDDEN"
	// FormatUnfinished: a format of the volume was interrupted, and it is not safe to format again.
	FormatUnfinished Reason = "CB-FORMAT-UNFINISHED"
	// FormatFailed: mkfs failed, or made another filesystem.
	FormatFailed Reason = "CB-FORMAT-FAILED"

	// Of filesystems and mounts.

	// FsckFailed: the filesystem is damaged so that an operator has to decide.
	FsckFailed Reason = "CB-FSCK-FAILED"
	// MountFailed: the kernel does not mount the filesystem as requested.
	MountFailed Reason = "CB-MOUNT-FAILED"
	// MountDead: the filesystem is mounted, and its disk is gone or returns errors.
	MountDead Reason = "CB-MOUNT-DEAD"
	// GrowCapability: the node program lacks the capability to grow a mounted ext4.
	GrowCapability Reason = "CB-GROW-CAPABILITY"
	// LUKSKey: the passphrase of an encrypted volume is missing or wrong.
	LUKSKey Reason = "CB-LUKS-KEY"
	// LUKSHeader: a LUKS header would cost too much memory or time, or could be opened without the passphrase.
	LUKSHeader Reason = "CB-LUKS-HEADER"
	// NoIOLimits: the node cannot limit the I/O of the pod as the class of the volume requires.
	NoIOLimits Reason = "CB-NO-IO-LIMITS"
	// IOLimitsFixed: the limits of I/O of a volume that exists are to change.
	IOLimitsFixed Reason = "CB-IO-LIMITS-FIXED"
	// ProgramMissing: the node lacks a program or a kernel feature that the volume needs.
	ProgramMissing Reason = "CB-PROGRAM-MISSING"
	// TargetInUse: a path of the kubelet has something other than the volume.
	TargetInUse Reason = "CB-TARGET-IN-USE"
)

// kindOfReason has the kind of each reason.
var kindOfReason = map[Reason]Kind{
	AccessDenied: Denied, Quota: Exhausted, NoZone: Exhausted, WrongZone: Precondition, NoSlot: Exhausted,
	AttachedElsewhere: Precondition, GrowDetach: Precondition,
	VolumeInUse: Precondition, VolumeDamaged: Precondition, SourceElsewhere: Exhausted,
	PoolFull: Exhausted, PoolUnusable: Precondition, NoCopies: InvalidArgument,
	DeviceMissing: Unavailable, DeviceIdentity: Precondition, DeviceTooSmall: Precondition, DeviceUnreadable: Precondition,
	DeviceInUse: Busy, UnstageInUse: Busy,
	FormatContent: Precondition, FormatDamaged: Precondition, FormatNotBlank: Precondition, FormatForbidden: Precondition,
	FormatUnfinished: Precondition, FormatFailed: Precondition,
	FsckFailed: Precondition, MountFailed: Precondition, MountDead: Precondition, GrowCapability: Precondition,
	NoIOLimits: Precondition, IOLimitsFixed: InvalidArgument,
	LUKSKey: Precondition, LUKSHeader: Precondition, ProgramMissing: Precondition, TargetInUse: Precondition,
}

// Reasons returns all reasons, sorted.
func Reasons() []Reason { return slices.Sorted(maps.Keys(kindOfReason)) }

// Error returns the text of the kind. Text has the code.
func (r Reason) Error() string { return r.kind().Error() }

// Unwrap returns the kind.
func (r Reason) Unwrap() error { return r.kind() }

func (r Reason) kind() Kind { return kindOfReason[r] }

// Explain adds a reason to an error, which keeps its own kind and text.
func (r Reason) Explain(err error) error {
	if err == nil {
		return nil
	}
	return &explained{error: err, reason: r}
}

type explained struct {
	error
	reason Reason
}

func (e *explained) Unwrap() error { return e.error }

// Is matches the reason, and not its kind.
func (e *explained) Is(target error) bool { return target == e.reason }

// As matches the reason.
func (e *explained) As(target any) bool {
	r, ok := target.(*Reason)
	if ok {
		*r = e.reason
	}
	return ok
}

// ReasonOf returns the reason of err: the outermost, depth first. An error without one has AccessDenied if its kind is Denied, and
// Quota if it is fault.Exhausted from a cloud. An unknown outcome has no reason, unless Denied is why it stays unknown: repeats
// cannot change that.
func ReasonOf(err error) Reason {
	kind := Of(err)
	var r Reason
	switch {
	case kind == Uncertain && errors.Is(err, Denied):
		return AccessDenied
	case kind == Uncertain:
		return NoReason
	case errors.As(err, &r):
		return r
	case kind == Denied:
		return AccessDenied
	case kind != Busy && errors.Is(err, Exhausted) && FromCloud(err):
		return Quota
	}
	return NoReason
}

// Text returns what a person reads of err: its Plain text, after the code of its reason.
func Text(err error) string {
	if r := ReasonOf(err); r != NoReason {
		return string(r) + ": " + Plain(err)
	}
	return Plain(err)
}

// withoutKinds removes the kinds whose errors always have a sentence, and whose gRPC code or exit code says the same.
var withoutKinds = strings.NewReplacer(": "+InvalidArgument.Error(), "", ": "+Precondition.Error(), "")

// Plain returns the text of err without the kinds that tell a person nothing.
func Plain(err error) string { return withoutKinds.Replace(err.Error()) }
