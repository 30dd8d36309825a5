//go:build e2e

package check

import (
	"crypto/sha256"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// hash returns the checksum of an image.
func hash(t *testing.T, image string) [sha256.Size]byte {
	t.Helper()
	f, err := os.Open(image)
	must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(t, err)
	return [sha256.Size]byte(h.Sum(nil))
}

// Without --replay, not one bit of the image changes, and a filesystem that was in use is not judged.
func TestCheckOnlyReads(t *testing.T) {
	for _, fs := range []mounter.Filesystem{mounter.Ext4, mounter.XFS} {
		for _, s := range states {
			if testing.Short() && s.name == "full" {
				continue
			}
			t.Run(string(fs)+", "+s.name, func(t *testing.T) {
				v := makeVolume(t, fs, mathrand.New(mathrand.NewPCG(1, 1)))
				v.mounted(t, func(dir string) { v.fill(t, dir); s.leave(t, v, dir) })
				if s.name == "frozen" {
					v.image += ".frozen"
				}
				before := hash(t, v.image)
				result := Intact
				if s.inUse {
					result = Undecided
				}
				r := Run(t.Context(), Request{Path: v.image})
				want(t, r, result)
				if s.inUse && !strings.Contains(strings.Join(r.Unchecked, "\n"), "--replay") {
					t.Errorf("the report does not say what to do: %+v", r)
				}
				if hash(t, v.image) != before {
					t.Error("the check has written to the image")
				}
			})
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	v := makeVolume(t, mounter.Ext4, mathrand.New(mathrand.NewPCG(2, 2)))
	v.mounted(t, func(dir string) { v.fill(t, dir) })
	refused := func(path, message string, replay bool) {
		t.Helper()
		before := hash(t, v.image)
		r := Run(t.Context(), Request{Path: path, Replay: replay})
		want(t, r, Undecided)
		if text := strings.Join(r.Unchecked, "\n"); !strings.Contains(text, message) {
			t.Errorf("a check of %s says %q, want %q", path, text, message)
		}
		if hash(t, v.image) != before {
			t.Errorf("the check of %s has written to it", path)
		}
	}
	v.mounted(t, func(dir string) {
		root, err := os.Open(dir)
		must(t, err)
		defer root.Close()
		must(t, unix.Syncfs(int(root.Fd())))
		refused(v.device, "CB-DEVICE-IN-USE", false)
		refused(v.device, "CB-DEVICE-IN-USE", true)
		refused(v.image, "CB-DEVICE-IN-USE", true)
	})
	refused(filepath.Dir(v.image), "neither a block device nor an image", false)
	refused("/dev/null", "neither a block device nor an image", false)

	t.Setenv("PATH", "")
	refused(v.image, "CB-PROGRAM-MISSING", false)
}

// TestCheckOfOtherContent: what has no filesystem is no restored volume, and what has another is not judged.
func TestCheckOfOtherContent(t *testing.T) {
	blank := filepath.Join(t.TempDir(), "blank")
	must(t, os.WriteFile(blank, nil, 0o600))
	must(t, os.Truncate(blank, 64<<20))
	want(t, Run(t.Context(), Request{Path: blank}), Damaged)
	command(t, "mkswap", blank)
	want(t, Run(t.Context(), Request{Path: blank}), Undecided)
}

// TestListsOfChecksums: a list that names other files than those of the volume, or none, is a finding.
func TestListsOfChecksums(t *testing.T) {
	v := makeVolume(t, mounter.Ext4, mathrand.New(mathrand.NewPCG(3, 3)))
	v.mounted(t, func(dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600))
		must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "outside")))
		must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	})
	none := someHash[:len(someHash)-1] + "0"
	for name, tc := range map[string]struct{ list, finding string }{
		"a wrong checksum":           {none + "  file\n", "not the one of the list"},
		"a file that is not there":   {none + "  gone\n", "no such file"},
		"a link that leaves":         {none + "  outside\n", "escapes"},
		"a named pipe":               {none + "  pipe\n", "not a file"},
		"a path that leaves":         {none + "  ../file\n", "leaves the volume"},
		"a line of another form":     {"# comment\n", "line 1"},
		"a line that is too long":    {strings.Repeat("x", maxLine+1), "too long"},
		"no line":                    {"", "empty"},
		"a right one before a wrong": {"ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73  file\n" + none + "  ./file", "not the one of the list"},
	} {
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "list")
			must(t, os.WriteFile(list, []byte(tc.list), 0o600))
			r := Run(t.Context(), Request{Path: v.image, Checksums: list})
			if r.Result != Damaged || len(r.Findings) != 1 || !strings.Contains(r.Findings[0], tc.finding) {
				t.Errorf("the report is %+v, want one finding with %q", r, tc.finding)
			}
		})
	}
	r := Run(t.Context(), Request{Path: v.image, Checksums: "list"})
	if r.Result != Damaged {
		t.Errorf("the report is %+v, want a finding, because the list that was asked for is not on the volume", r)
	}
}
