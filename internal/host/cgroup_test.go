package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

const (
	podUID   = "1b9c0b5e-6f0a-4b53-9d6b-0c1f7a2d4e11"
	podSlice = "pod1b9c0b5e_6f0a_4b53_9d6b_0c1f7a2d4e11.slice"
)

// cgroups makes a tree of folders as the kubelet makes it of cgroups, each with an empty io.max.
func cgroups(t *testing.T, dirs ...string) host.Cgroups {
	t.Helper()
	root := t.TempDir()
	for _, dir := range dirs {
		for path := filepath.Join(root, dir); path != root; path = filepath.Dir(path) {
			must(t, os.MkdirAll(path, 0o700))
			must(t, os.WriteFile(filepath.Join(path, "io.max"), nil, 0o600))
		}
	}
	return host.Cgroups(root)
}

// noWait ends the wait for a pod's cgroup after the first look.
func noWait(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// P12: the names are those of pkg/kubelet/cm of Kubernetes 1.37, for both cgroup drivers and all classes of pods.
func TestCgroupOfAPod(t *testing.T) {
	const other, otherSlice = "pod1b9c0b5e-6f0a-4b53-9d6b-0c1f7a2d4e12", "pod1b9c0b5e_6f0a_4b53_9d6b_0c1f7a2d4e12.slice"
	tests := map[string]struct {
		dirs []string
		want string // empty: refused
	}{
		"cgroupfs, guaranteed":  {[]string{"kubepods/pod" + podUID + "/c1", "kubepods/" + other, "kubepods/burstable/pod1"}, "kubepods/pod" + podUID},
		"cgroupfs, burstable":   {[]string{"kubepods/burstable/pod" + podUID + "/c1/pod" + podUID}, "kubepods/burstable/pod" + podUID},
		"cgroupfs, best effort": {[]string{"kubepods/besteffort/" + other, "kubepods/besteffort/pod" + podUID}, "kubepods/besteffort/pod" + podUID},
		"systemd, guaranteed":   {[]string{"kubepods.slice/kubepods-" + podSlice, "kubepods.slice/kubepods-" + otherSlice}, "kubepods.slice/kubepods-" + podSlice},
		"systemd, burstable": {
			[]string{"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-" + podSlice + "/cri-containerd-1.scope", "system.slice/kubelet.service"},
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-" + podSlice,
		},
		"systemd, below --cgroup-root=/kubelet": {
			[]string{"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-" + podSlice},
			"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-" + podSlice,
		},
		"a kubelet in a container": {
			[]string{"docker/4f3c/kubelet/kubepods/burstable/pod" + podUID}, "docker/4f3c/kubelet/kubepods/burstable/pod" + podUID,
		},
		"no cgroup":                      {[]string{"kubepods/burstable/" + other, "pod"}, ""},
		"a UID as the part of a name":    {[]string{"kubepods/pod" + podUID + "-1", "kubepods/xpod" + podUID, "kubepods.slice/kubepods" + podSlice}, ""},
		"two cgroups of that name":       {[]string{"kubepods/pod" + podUID, "other/pod" + podUID}, ""},
		"deeper than any kubelet has it": {[]string{"1/2/3/4/5/6/7/pod" + podUID}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := cgroups(t, tc.dirs...)
			got, err := root.Pod(noWait(t), podUID)
			if tc.want == "" {
				if !errors.Is(err, fault.NoIOLimits) || fault.Of(err) != fault.Precondition {
					t.Errorf("Pod = %q, %v, want %v", got, err, fault.NoIOLimits)
				}
				return
			}
			if want := filepath.Join(string(root), tc.want); got != want || err != nil {
				t.Errorf("Pod = %q, %v, want %q", got, err, want)
			}
		})
	}
}

// The kubelet may mount the volumes of a pod a moment before it has created the cgroup.
func TestCgroupOfAPodThatIsCreatedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := cgroups(t, "kubepods")
		dir := filepath.Join(string(root), "kubepods", "pod"+podUID)
		go func() {
			time.Sleep(time.Second)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Error(err)
			}
		}()
		if got, err := root.Pod(t.Context(), podUID); got != dir || err != nil {
			t.Errorf("Pod = %q, %v, want %q", got, err, dir)
		}
		start := time.Now()
		if _, err := root.Pod(t.Context(), "another"); !errors.Is(err, fault.NoIOLimits) || time.Since(start) > 5*time.Second {
			t.Errorf("Pod of a pod that never gets a cgroup = %v after %v", err, time.Since(start))
		}
	})
}

func TestLinesOfIOMax(t *testing.T) {
	root := cgroups(t, "kubepods/pod"+podUID)
	dir := filepath.Join(string(root), "kubepods/pod"+podUID)
	for want, limits := range map[string]host.IOMax{
		"253:7 rbps=max wbps=max riops=100 wiops=max\n":                        {ReadIOPS: 100},
		"253:7 rbps=1048576 wbps=2097152 riops=10 wiops=20\n":                  {ReadBandwidth: 1 << 20, WriteBandwidth: 2 << 20, ReadIOPS: 10, WriteIOPS: 20},
		"253:7 rbps=max wbps=9223372036854775807 riops=max wiops=4294967295\n": {WriteBandwidth: 1<<63 - 1, WriteIOPS: 1<<32 - 1},
	} {
		if err := root.Limit(dir, unix.Mkdev(253, 7), limits); err != nil {
			t.Errorf("Limit(%+v) = %v", limits, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "io.max")); string(got) != want || err != nil {
			t.Errorf("Limit(%+v) wrote %q, %v, want %q", limits, got, err, want)
		}
	}
	expect.Kind(t, "Unlimit of a device without limits", root.Unlimit(podUID, unix.Mkdev(253, 77)), fault.None)
	if got, _ := os.ReadFile(filepath.Join(dir, "io.max")); len(got) == 0 {
		t.Error("Unlimit of another device has changed the limits")
	}
	expect.Kind(t, "Unlimit", root.Unlimit(podUID, unix.Mkdev(253, 7)), fault.None)
	// A file keeps the line, the kernel removes it.
	if got, _ := os.ReadFile(filepath.Join(dir, "io.max")); string(got) != "253:7 rbps=max wbps=max riops=max wiops=max\n" {
		t.Errorf("Unlimit wrote %q", got)
	}
	expect.Kind(t, "Unlimit of a pod that has ended", root.Unlimit("another", unix.Mkdev(253, 7)), fault.None)
}

// P12: limits that do not hold are refused, and no file takes the place of what a cgroup lacks.
func TestLimitsThatCannotBeSet(t *testing.T) {
	root := cgroups(t, "kubepods/pod"+podUID)
	dir, number := filepath.Join(string(root), "kubepods/pod"+podUID), unix.Mkdev(8, 0)
	file := filepath.Join(dir, "io.max")
	// It takes everything and keeps nothing.
	must(t, errors.Join(os.Remove(file), os.Symlink("/dev/null", file)))
	expect.Reason(t, "Limit that the kernel ignores", root.Limit(dir, number, host.IOMax{ReadIOPS: 10}), fault.NoIOLimits)
	must(t, os.Remove(file))
	expect.Reason(t, "Limit without the io controller", root.Limit(dir, number, host.IOMax{ReadIOPS: 10}), fault.NoIOLimits)
	expect.Kind(t, "Unlimit without the io controller", root.Unlimit(podUID, number), fault.None)
	if _, err := os.Lstat(file); err == nil {
		t.Error("io.max has been created")
	}
	for _, dir := range []host.Cgroups{root, "/nowhere"} {
		if err := dir.Check(); !errors.Is(err, fault.NoIOLimits) {
			t.Errorf("Check of %s = %v, want %v", dir, err, fault.NoIOLimits)
		}
	}
}
