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
	if got := ExplainHolder(dm); !strings.HasPrefix(got, dm) || !strings.Contains(got, `"guest-root"`) || !strings.Contains(got, "vgchange -an") {
		t.Errorf("of a stacked device = %q", got)
	}
	if got := ExplainHolder("/mnt/pod"); got != "/mnt/pod" {
		t.Errorf("of a mount = %q", got)
	}
}
