package mount

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAHolderIsExplained(t *testing.T) {
	dm := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dm, "dm"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dm, "dm/name"), []byte("guest-root\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := ExplainHolders([]string{dm}); !strings.HasPrefix(got, dm) || !strings.Contains(got, `"guest-root"`) || !strings.Contains(got, "vgchange -an") {
		t.Errorf("of a stacked device = %q", got)
	}
	if err := os.WriteFile(filepath.Join(dm, "dm/uuid"), []byte("mpath-0DO_Volume_pvc-1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// longhorn/longhorn#1210, kubernetes-sigs/azuredisk-csi-driver#1717: multipathd takes each new disk of the cloud.
	if got := ExplainHolders([]string{dm}); !strings.HasPrefix(got, dm) || !strings.Contains(got, "multipath.conf") || strings.Contains(got, "vgchange") {
		t.Errorf("of multipathd = %q", got)
	}
	if got := ExplainHolders([]string{"/mnt/pod", "/mnt/other"}); got != "/mnt/pod, /mnt/other" {
		t.Errorf("of two mounts = %q", got)
	}
}
