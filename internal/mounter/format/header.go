package format

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// LUKSSubsystem is the subsystem that luksFormat writes into each header of ours, together with the header itself.
const LUKSSubsystem = "cloudblock"

// hasOurSubsystem reads the binary header; the place is that of "subsystem" in the LUKS2 on-disk format.
func hasOurSubsystem(r io.ReaderAt) (bool, error) {
	const subsystemAt, subsystemLength = 208, 48
	b := make([]byte, subsystemLength)
	if err := host.ReadFull(r, b, subsystemAt); err != nil {
		return false, err
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text) == LUKSSubsystem, nil
}

// CheckPlain refuses a raw block volume without encryption whose disk has a header of this driver: the user would overwrite the
// key. A header that the user wrote counts as data, and so does a start of the disk that cannot be read.
func CheckPlain(dev mounter.BlockDevice) error {
	head := make([]byte, probeBlock)
	if err := host.ReadFull(dev.File(), head, 0); err != nil {
		return nil //nolint:nilerr // a disk with bad sectors is used as it is
	}
	magic, err := primary(bytes.NewReader(head))
	if err != nil || magic != mounter.LUKS {
		return nil //nolint:nilerr // several magics are no header of ours
	}
	if ours, err := hasOurSubsystem(bytes.NewReader(head)); err != nil || !ours {
		return err
	}
	return fmt.Errorf("%s holds an encrypted volume, and its class or attributes do not say luks: it is left as it is: %w",
		dev.Path(), fault.FormatContent)
}

// CheckOwnHeader refuses a LUKS header without this driver's subsystem on a disk that is a copy: the source was not encrypted by
// this driver, and its user wrote the header. It cannot detect a header that was forged with the subsystem.
func CheckOwnHeader(dev mounter.BlockDevice) error {
	ours, err := hasOurSubsystem(dev.File())
	if err != nil || ours {
		return err
	}
	return fmt.Errorf("%s is a copy of what this driver has not encrypted, and its LUKS header is not opened: %w", dev.Path(), fault.LUKSHeader)
}
