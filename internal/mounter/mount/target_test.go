package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestCheckPath(t *testing.T) {
	dir := t.TempDir()
	must(t, errors.Join(os.Symlink(dir, filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)))
	tests := map[string]struct {
		path string
		ok   bool
	}{
		"a directory":                          {dir, true},
		"a path that does not exist":           {dir + "/a/b/c", true},
		"a file":                               {dir + "/file", true},
		"a relative path":                      {"a/b", false},
		"the empty path":                       {"", false},
		"the root":                             {"/", false},
		"dots that lead upwards":               {dir + "/../x", false},
		"a slash at the end":                   {dir + "/", false},
		"two slashes":                          {"/" + dir, false},
		"a symbolic link":                      {dir + "/link", false},
		"a path through a symbolic link":       {dir + "/link/a", false},
		"a path through a file":                {dir + "/file/a", false},
		"a name longer than any":               {dir + "/" + strings.Repeat("a", 300), false},
		"a zero byte":                          {dir + "/a\x00b", false},
		"a name with dots that are none of it": {dir + "/..a", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := New(Config{}).CheckPath(tc.path)
			if (err == nil) != tc.ok || !tc.ok && !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("CheckPath(%q) = %v, want accepted: %v", tc.path, err, tc.ok)
			}
		})
	}
}

// P7: a target that has content or a mount is left as it is.
func TestRemoveTargetTakesOnlyWhatIsEmpty(t *testing.T) {
	tests := map[string]struct {
		set  func(path string) error
		kind fault.Kind
	}{
		"nothing there":            {func(string) error { return nil }, fault.None},
		"an empty directory":       {func(p string) error { return os.Mkdir(p, 0o755) }, fault.None},
		"an empty file":            {func(p string) error { return os.WriteFile(p, nil, 0o600) }, fault.None},
		"a directory with a file":  {func(p string) error { return errors.Join(os.Mkdir(p, 0o755), os.WriteFile(p+"/f", nil, 0o600)) }, fault.Precondition},
		"a directory in directory": {func(p string) error { return os.MkdirAll(p+"/d", 0o755) }, fault.Precondition},
		"a file with data":         {func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) }, fault.Precondition},
		"a symbolic link":          {func(p string) error { return os.Symlink("/nowhere", p) }, fault.Precondition},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "target")
			must(t, tc.set(path))
			if err := New(Config{}).RemoveTarget(path); fault.Of(err) != tc.kind {
				t.Errorf("RemoveTarget = %v, want kind %q", err, tc.kind)
			} else if is := errors.Is(err, fault.TargetInUse); is != (tc.kind == fault.Precondition) {
				t.Errorf("the reason of %v is %q", err, string(fault.ReasonOf(err)))
			}
			_, err := os.Lstat(path)
			if gone := errors.Is(err, os.ErrNotExist); gone != (tc.kind == fault.None) {
				t.Errorf("after RemoveTarget it is gone: %v", gone)
			}
		})
	}
}

func TestEnsureTargets(t *testing.T) {
	dir := t.TempDir()
	full, file, empty := filepath.Join(dir, "full"), filepath.Join(dir, "file"), filepath.Join(dir, "empty")
	must(t, errors.Join(os.MkdirAll(full+"/x", 0o755), os.WriteFile(file, []byte("x"), 0o600), os.Mkdir(empty, 0o755)))
	m := New(Config{})
	ensure := func(path string, ensure func(target) (bool, error), want fault.Kind) {
		t.Helper()
		at, err := m.open(path)
		must(t, err)
		defer at.close()
		if _, err := ensure(at); fault.Of(err) != want {
			t.Errorf("%s = %v, want kind %q", path, err, want)
		}
	}
	for path, want := range map[string]fault.Kind{full: fault.Conflict, file: fault.Conflict, empty: fault.None, dir + "/a": fault.None} {
		ensure(path, target.ensureDir, want)
	}
	for path, want := range map[string]fault.Kind{full: fault.Conflict, file: fault.Conflict, dir + "/b": fault.None} {
		ensure(path, target.ensureFile, want)
	}
}

func TestParsersOfKernelText(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapEff:\t000001ffffffffff\n": true, "CapEff:\t000001fffeffffff\n": false, "CapPrm:\t000001ffffffffff\n": false, "CapEff:\tzz\n": false,
	} {
		if got := hasCapability(status, 24); got != want {
			t.Errorf("hasCapability(%q) = %v, want %v", status, got, want)
		}
	}
}

func TestAHolderIsExplained(t *testing.T) {
	dm := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dm, "dm"), 0o755))
	must(t, os.WriteFile(filepath.Join(dm, "dm/name"), []byte("guest-root\n"), 0o644))
	if got := ExplainHolders([]string{dm}); !strings.HasPrefix(got, dm) || !strings.Contains(got, `"guest-root"`) || !strings.Contains(got, "vgchange -an") {
		t.Errorf("of a stacked device = %q", got)
	}
	must(t, os.WriteFile(filepath.Join(dm, "dm/uuid"), []byte("mpath-0DO_Volume_pvc-1\n"), 0o644))
	// longhorn/longhorn#1210, kubernetes-sigs/azuredisk-csi-driver#1717: multipathd takes each new disk of the cloud.
	if got := ExplainHolders([]string{dm}); !strings.HasPrefix(got, dm) || !strings.Contains(got, "multipath.conf") || strings.Contains(got, "vgchange") {
		t.Errorf("of multipathd = %q", got)
	}
	if got := ExplainHolders([]string{"/mnt/pod", "/mnt/other"}); got != "/mnt/pod, /mnt/other" {
		t.Errorf("of two mounts = %q", got)
	}
}
