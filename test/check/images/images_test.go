//go:build images

// Package images_test looks into the images that build/images-local.sh has written: what is in them,
// and that every tool of the node image runs with nothing but what is beside it. It needs root, for
// a root folder and mounts of their own.
package images_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var dir = flag.String("images", "", "the folder with controller.tar, node.tar and lvm.tar")

// config is what the tests look at in an image's configuration.
type config struct {
	Config struct {
		User       string
		Env        []string
		Entrypoint []string
		Labels     map[string]string
	}
}

// unpack returns the image's files below a folder, its configuration and its name.
func unpack(t *testing.T, name string) (root string, c config, tag string) {
	t.Helper()
	if *dir == "" {
		t.Fatal("-images is not given; run `make images-local`")
	}
	archive := t.TempDir()
	untar(t, filepath.Join(*dir, name+".tar"), archive)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	readJSON(t, filepath.Join(archive, "manifest.json"), &manifest)
	readJSON(t, filepath.Join(archive, manifest[0].Config), &c)
	root = t.TempDir()
	for _, layer := range manifest[0].Layers {
		untar(t, filepath.Join(archive, layer), root)
	}
	return root, c, manifest[0].RepoTags[0]
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	expect.NoError(t, err)
}

func untar(t *testing.T, file, into string) {
	t.Helper()
	f, err := os.Open(file)
	expect.NoError(t, err)
	defer f.Close()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = extract(r, h, filepath.Join(into, h.Name))
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func extract(r io.Reader, h *tar.Header, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeReg:
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Chmod(mode), f.Close())
	default:
		return fmt.Errorf("%s is of a kind that an image of ours does not have: %q", h.Name, h.Typeflag)
	}
}

// files lists everything that is not a folder.
func files(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, root))
		}
		return err
	})
	expect.NoError(t, err)
	return found
}

// run runs a program as it would run in a container of the image, which sees a /proc of its own, and
// returns what it printed.
func run(t *testing.T, root string, c config, args ...string) (string, error) {
	t.Helper()
	expect.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	args = append([]string{"--mount", "--pid", "--fork", "--root=" + root, "--mount-proc", "--"}, args...)
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = c.Config.Env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// An image of more bytes than this, unpacked, has something in it that the programs do not need.
func TestImagesAreSmall(t *testing.T) {
	for name, bar := range map[string]int64{"controller": 30e6, "node": 120e6, "lvm": 160e6} {
		root, _, _ := unpack(t, name)
		var size int64
		for _, file := range files(t, root) {
			info, err := os.Lstat(root + file)
			expect.NoError(t, err)
			size += info.Size()
		}
		t.Logf("%s: %.1f MB", name, float64(size)/1e6)
		if size > bar {
			t.Errorf("the %s image has %d bytes, want max. %d", name, size, bar)
		}
	}
}

// lvmTools are what the image for volume groups has besides the tools of the node.
var lvmTools = []string{"lvm"}

// Scanners know a distribution's packages in an image without dpkg by these files.
func TestTheImagesSayWhichPackagesTheyHave(t *testing.T) {
	packages := []string{"libc6", "mount", "e2fsprogs", "xfsprogs", "cryptsetup-bin", "dmsetup"}
	testPackages(t, "node", packages)
	testPackages(t, "lvm", append(packages, "lvm2"))
}

func testPackages(t *testing.T, image string, packages []string) {
	t.Helper()
	root, _, _ := unpack(t, image)
	release, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil || !strings.Contains(string(release), "ID=debian") {
		t.Errorf("%s: /etc/os-release = %q, %v", image, release, err)
	}
	for _, name := range packages {
		entry, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status.d", name))
		if err != nil || !strings.Contains(string(entry), "\nVersion: ") {
			t.Errorf("%s: the entry of %s = %q, %v", image, name, entry, err)
		}
	}
}

// Each licence that a program contains asks for its text to go with it.
func TestTheImagesHaveTheTermsOfWhatIsInThem(t *testing.T) {
	for name, modules := range map[string][]string{
		"controller": {"google.golang.org/grpc v", "github.com/hashicorp/go-retryablehttp v", "Go go1."},
		"node":       {"google.golang.org/grpc v", "k8s.io/mount-utils v", "Go go1."},
		"lvm":        {"github.com/hashicorp/go-retryablehttp v", "k8s.io/mount-utils v", "Go go1."},
	} {
		root, _, _ := unpack(t, name)
		text, err := os.ReadFile(filepath.Join(root, "licenses/third-party"))
		expect.NoError(t, err)
		for _, module := range modules {
			if !strings.Contains(string(text), "\n"+module) {
				t.Errorf("the %s image has no terms of %s", name, module)
			}
		}
		own, err := os.ReadFile(filepath.Join(root, "licenses/cloudblock-csi"))
		if err != nil || !strings.Contains(string(own), "Apache License") {
			t.Errorf("the %s image has the project's terms %.40q, %v", name, own, err)
		}
	}
}

func TestTheControllerIsOneProgramAndItsCertificates(t *testing.T) {
	root, c, _ := unpack(t, "controller")
	if got, want := files(t, root), []string{
		"/cloudblock-controller", "/etc/ssl/certs/ca-certificates.crt", "/licenses/cloudblock-csi", "/licenses/third-party",
	}; !slices.Equal(got, want) {
		t.Errorf("the image holds %v, want %v", got, want)
	}
	if c.Config.User != "65532:65532" {
		t.Errorf("it runs as %q, want a number that is not root", c.Config.User)
	}
	checkStarts(t, root, c, "cloudblock-controller")
}

func TestTheNodeImageHoldsItsToolsAndNothingToLogInWith(t *testing.T) {
	root, c, _ := unpack(t, "node")
	checkStarts(t, root, c, "cloudblock-node")
	checkPrograms(t, root, append(tools(t), "cloudblock-node"))
}

func TestTheImageForVolumeGroupsHoldsBothProgramsAndTheirTools(t *testing.T) {
	root, c, _ := unpack(t, "lvm")
	checkStarts(t, root, c, "cloudblock-controller")
	checkVersion(t, root, c, "cloudblock-node")
	checkPrograms(t, root, append(tools(t), append(lvmTools, "cloudblock-controller", "cloudblock-node")...))
}

// checkPrograms: the image has these programs and no others.
func checkPrograms(t *testing.T, root string, want []string) {
	t.Helper()
	for _, file := range files(t, root) {
		info, err := os.Lstat(root + file)
		expect.NoError(t, err)
		if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s lends its owner's rights", file)
		}
		program := info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 && !strings.HasPrefix(file, "/usr/lib")
		if program && !slices.Contains(want, filepath.Base(file)) {
			t.Errorf("%s is a program that the node does not call", file)
		}
	}
}

// checkStarts: the image starts the program, whose version is the one that the image is labelled with.
func checkStarts(t *testing.T, root string, c config, name string) {
	t.Helper()
	if !slices.Equal(c.Config.Entrypoint, []string{"/" + name}) {
		t.Errorf("the image starts %v", c.Config.Entrypoint)
	}
	checkVersion(t, root, c, name)
}

func checkVersion(t *testing.T, root string, c config, name string) {
	t.Helper()
	out, err := run(t, root, c, "/"+name, "--version")
	want := fmt.Sprintf("%s %s %s\n", name, c.Config.Labels["org.opencontainers.image.version"], c.Config.Labels["org.opencontainers.image.revision"])
	if err != nil || out != want {
		t.Errorf("--version = %q, %v, want %q", out, err, want)
	}
}

// TestToolsAreThoseTheNodeCalls: a tool that is added to the program has to come into the image.
func TestToolsAreThoseTheNodeCalls(t *testing.T) {
	script, err := os.ReadFile("../../../build/node-tools.sh")
	expect.NoError(t, err)
	_, list, _ := strings.Cut(string(script), "\ntools=\"")
	list, _, _ = strings.Cut(list, "\"")
	got, want := strings.Fields(list), tools(t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("build/node-tools.sh has %v, cmd/node/checks.go has %v", got, want)
	}
}

// tools reads the names in cmd/node/checks.go: the strings of every field called programs.
func tools(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../cmd/node/checks.go", nil, 0)
	expect.NoError(t, err)
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		field, is := n.(*ast.KeyValueExpr)
		if key, named := keyOf(field, is); !named || key != "programs" {
			return true
		}
		ast.Inspect(field.Value, func(n ast.Node) bool {
			if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING {
				name, err := strconv.Unquote(text.Value)
				expect.NoError(t, err)
				names = append(names, name)
			}
			return true
		})
		return false
	})
	if len(names) < 9 {
		t.Fatalf("cmd/node/checks.go names only %v", names)
	}
	return names
}

func keyOf(field *ast.KeyValueExpr, is bool) (string, bool) {
	if !is {
		return "", false
	}
	key, named := field.Key.(*ast.Ident)
	if !named {
		return "", false
	}
	return key.Name, true
}
