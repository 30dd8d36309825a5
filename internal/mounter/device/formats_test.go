package device

import (
	"os"
	"path/filepath"
	"testing"
)

// A record is of the device that it was written for, and of no other. Nothing but a block device has the kernel's number, so
// the records of this test match nothing; TestAStaleFormatRecord has disks.
func TestFormatRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "formats")
	file, err := os.CreateTemp(t.TempDir(), "disk")
	must(t, err)
	defer func() { _ = file.Close() }()
	dev := &Device{file: file, spec: Spec{Volume: "a/../b", Serial: "s"}}
	f := NewFormats(dir)
	want := func(when string, wantRecord bool) {
		t.Helper()
		onRecord, ofDevice, err := NewFormats(dir).Begun(dev, "ext4") // as the next program
		if err != nil || onRecord != wantRecord || ofDevice {
			t.Errorf("%s: Begun = %v, %v, %v, want %v and no device", when, onRecord, ofDevice, err, wantRecord)
		}
	}
	want("at first", false)
	must(t, f.End(dev.spec.Volume))
	must(t, f.Begin(dev, "ext4"))
	want("without the kernel's number of the disk", true)
	must(t, os.WriteFile(f.path(dev.spec.Volume), []byte("{"), 0o600))
	want("with a file that makes no sense", true)
	must(t, f.End(dev.spec.Volume))
	want("ended", false)
	must(t, os.Mkdir(f.path(dev.spec.Volume), 0o700))
	if _, _, err := f.Begun(dev, "ext4"); err == nil {
		t.Error("Begun of a record that cannot be read = nil, want an error")
	}
	if err := f.Begin(dev, "ext4"); err == nil {
		t.Error("Begin that cannot write = nil, want an error")
	}
	var none *Formats
	if onRecord, _, err := none.Begun(dev, "ext4"); onRecord || err != nil || none.Begin(dev, "ext4") != nil || none.End("v") != nil {
		t.Errorf("a nil *Formats remembers: %v, %v", onRecord, err)
	}
}
