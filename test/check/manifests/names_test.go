package manifests_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

func TestNamesAreTheDrivers(t *testing.T) {
	for _, cloud := range overlays(t) {
		is, known := profile.Of(cloud)
		if !known {
			t.Fatalf("%s is no cloud that the programs know", cloud)
		}
		names, err := driver.NewNames(cloud, is.Scope, "", nil)
		must(t, err)
		o := parse(t, render(t, sets()[cloud]))
		checkName(t, o, names.Driver)
		if len(o.classes) == 0 {
			t.Errorf("%s has no StorageClass", cloud)
		}
		for _, c := range o.classes {
			checkClass(t, c)
		}
		if want := "cloudblock-" + cloud; !o.namespaces[want] || len(o.namespaces) != 1 {
			t.Errorf("%s: namespaces %v, want its own, %s", cloud, o.namespaces, want)
		}
	}
}

// TestSELinuxMountIsNotAdvertised: the node program does not prove a label, and no component gives its container the
// node's SELinux. With such a component, seLinuxMount belongs there and not in an overlay.
func TestSELinuxMountIsNotAdvertised(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		for _, d := range o.drivers {
			if d.Spec.SELinuxMount != nil && *d.Spec.SELinuxMount {
				t.Errorf("%s: seLinuxMount is true", d.Name)
			}
		}
	})
}

// checkName: everything that has the driver's name has this one.
func checkName(t *testing.T, o objects, name string) {
	t.Helper()
	if len(o.drivers) != 1 || o.drivers[0].Name != name {
		t.Fatalf("CSIDriver objects %+v, want one, %s", o.drivers, name)
	}
	for _, c := range o.classes {
		if c.Provisioner != name {
			t.Errorf("StorageClass %s is of %s, want %s", c.Name, c.Provisioner, name)
		}
	}
	for _, c := range o.snapshotClasses {
		if c.Driver != name {
			t.Errorf("VolumeSnapshotClass %s is of %s, want %s", c.Metadata.Name, c.Driver, name)
		}
	}
	checkSocket(t, "/var/lib/kubelet", name, o.pods["DaemonSet/cloudblock-node"])
}

// checkClass: a volume that is made before its pod is placed may be out of the pod's reach, and a class
// that forbids growth can never allow it for the volumes that it made.
func checkClass(t *testing.T, c storagev1.StorageClass) {
	t.Helper()
	if c.VolumeBindingMode == nil || *c.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		t.Errorf("StorageClass %s does not wait for the pod", c.Name)
	}
	if c.AllowVolumeExpansion == nil || !*c.AllowVolumeExpansion {
		t.Errorf("StorageClass %s does not let volumes grow", c.Name)
	}
	if fs := c.Parameters["csi.storage.k8s.io/fstype"]; !slices.Contains([]string{"ext4", "xfs"}, fs) {
		t.Errorf("StorageClass %s has the filesystem %q", c.Name, fs)
	}
}

// checkSocket: the kubelet, the registrar and the node program mean the same file.
func checkSocket(t *testing.T, kubelet, name string, pod corev1.PodSpec) {
	t.Helper()
	dir := kubelet + "/plugins/" + name
	if got := nodesFolder(pod, "plugin-dir"); got != dir {
		t.Errorf("the socket's folder is %q, want %s", got, dir)
	}
	for _, c := range pod.Containers {
		if c.Name != "node-driver-registrar" {
			continue
		}
		if want := "--kubelet-registration-path=" + dir + "/csi.sock"; !slices.Contains(expand(c), want) {
			t.Errorf("the registrar is started with %q, want %s", expand(c), want)
		}
	}
}

// A base that names a cloud is no base.
func TestBasesNameNoCloud(t *testing.T) {
	names := slices.DeleteFunc(profile.Names(), func(name string) bool { return name == "local" })
	cloud := regexp.MustCompile(`(?i)\blocal\b|` + strings.Join(names, "|"))
	for _, dir := range []string{"base", "components"} {
		err := filepath.WalkDir(filepath.Join(deploy, dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.Contains(path, "components/vendor-") {
				return err
			}
			text, err := os.ReadFile(path)
			if found := cloud.Find(text); found != nil {
				t.Errorf("%s names %s", path, found)
			}
			return err
		})
		must(t, err)
	}
}

const planted = "--not-a-flag-of-any-program"

// The programs list every mistake of a command line at once. So with one mistake planted, exactly one
// must be listed, and no flag of ours is wrong or missing.
func TestTheProgramsTakeTheirArguments(t *testing.T) {
	bin := programs(t)
	for _, cloud := range overlays(t) {
		ran := map[string]bool{}
		for name, pod := range parse(t, render(t, sets()[cloud])).pods {
			for _, c := range pod.Containers {
				ran[c.Name] = true
				takes(t, bin, cloud+", "+name, c, identified)
			}
		}
		if !ran["controller"] || !ran["node"] {
			t.Errorf("%s: found the programs %v, want both", cloud, ran)
		}
	}
}

// programs builds both into a folder, under the names of their containers.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	expect.Run(t, "go", "-C", "../../..", "build", "-o", bin, "./cmd/controller", "./cmd/node")
	return bin
}

// mistakesOf returns what a program finds wrong with its arguments and settings, one line each.
func mistakesOf(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Fatalf("%v = %v, want exit status 2\n%s", cmd.Args, err, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	return lines[1:]
}

// expand puts values in for the $(NAMES) of a container's environment, as the kubelet does.
func expand(c corev1.Container) []string {
	args := slices.Clone(c.Args)
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = "node-a"
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$("+e.Name+")", value)
		}
	}
	return args
}
