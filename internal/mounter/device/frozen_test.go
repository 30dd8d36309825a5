package device

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestRecordsOfTheNodeAreAsFrozen: the records of stages and formats that an earlier version has left on a node are read, under the
// same name, and the present version writes the same.
func TestRecordsOfTheNodeAreAsFrozen(t *testing.T) {
	dir := t.TempDir()
	records := NewRecords(dir)
	spec := Spec{Volume: "4711", Name: "scsi-0DO_Volume_pvc-1", Serial: "0001", Encrypted: true, Place: "/var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount"}
	must(t, records.Remember(spec))
	text, err := os.ReadFile(records.path(spec.Volume))
	must(t, err)
	golden.Format(t, "stage.txt", filepath.Base(records.path(spec.Volume))+"\n"+string(text)+"\n")
	if got, known := records.Recall(spec.Volume); !known || got != spec {
		t.Errorf("Recall = %+v, %t, want %+v", got, known, spec)
	}

	format := formatRecord{
		Format: formatRecordFormat, Volume: "4711", Serial: "0001", Filesystem: "ext4", Boot: "0b5c0f0e-0000-1111-2222-333344445555", Sequence: 7,
	}
	text, err = json.Marshal(format)
	must(t, err)
	golden.Format(t, "format.txt", filepath.Base(NewFormats(dir).path(format.Volume))+"\n"+string(text)+"\n")
}
