package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// nextZone is where the tests move a volume.
const nextZone = "ru-central1-b"

// movable is an account of the cloud that moves volumes, with a volume of the cluster prod that has data.
type movable struct {
	*inCloud

	folder *accounts.Yandex
	volume cloud.Volume
	data   [sha256.Size]byte
}

func newMovable(t *testing.T, takes time.Duration, decide func(accounts.Call) faults.Effect) *movable {
	t.Helper()
	var mu sync.Mutex // the volume is created before decide is asked
	ready := false
	folder := startAccount(t, "yandex", accounts.Options{
		Machines: 1, DataDir: t.TempDir(),
		Decide: func(c accounts.Call) faults.Effect {
			mu.Lock()
			defer mu.Unlock()
			if !ready || decide == nil {
				return faults.Effect{}
			}
			return decide(c)
		},
	}).(*accounts.Yandex)
	flags, err := folder.Controller(t.TempDir())
	ok(t, err)
	m := &movable{inCloud: &inCloud{t: t, account: folder, flags: append(flags, "--cloud=yandex")}, folder: folder}
	c, tags := m.open("prod")
	m.volume, err = c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "moved", Size: 8 << 20, Tags: tags})
	ok(t, err)
	file, err := os.OpenFile(m.file(), os.O_RDWR, 0)
	ok(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for range 64 { // blocks all over the disk
		block := make([]byte, 4096)
		for i := range block {
			block[i] = byte(random.Uint32())
		}
		_, err := file.WriteAt(block, random.Int64N(int64(m.volume.Size)-4096))
		ok(t, err)
	}
	ok(t, file.Close())
	m.data = m.sum()
	folder.SetDurations(yandex.Durations{Relocate: clock.Fixed(takes)})
	folder.ResetStats()
	mu.Lock()
	defer mu.Unlock()
	ready = true
	return m
}

func (m *movable) file() string {
	m.t.Helper()
	path, err := m.folder.DataFile(string(m.volume.ID))
	ok(m.t, err)
	return path
}

func (m *movable) sum() [sha256.Size]byte {
	m.t.Helper()
	content, err := os.ReadFile(m.file())
	ok(m.t, err)
	return sha256.Sum256(content)
}

// command is the program that moves the volume.
func (m *movable) command(zone string, args ...string) *exec.Cmd {
	m.t.Helper()
	return program(m.t, slices.Concat([]string{"relocate", string(m.volume.ID), zone}, m.flags, []string{"--cluster-id=prod"}, args)...)
}

// run runs it to its end.
func (m *movable) run(zone string, args ...string) (out, said string, err error) {
	m.t.Helper()
	cmd := m.command(zone, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// moves are the relocations that the cloud has accepted.
func (m *movable) moves() (n int) {
	for _, op := range m.account.Operations() {
		if op.Kind == "relocate" {
			n++
		}
	}
	return n
}

// isMoved checks that there is one disk, with its data, in the next zone, nothing else, and that it was moved once.
func (m *movable) isMoved() {
	m.t.Helper()
	disks := m.folder.Disks()
	if len(disks) != 1 || disks[0].ID != string(m.volume.ID) || disks[0].Zone != nextZone || disks[0].Status != "READY" {
		m.t.Errorf("the disks are %+v, want %s alone, in %s", disks, m.volume.ID, nextZone)
	}
	if m.sum() != m.data {
		m.t.Error("the data is not what it was")
	}
	if wrong, left := accounts.Wrong(m.account), m.account.Snapshots(); len(wrong)+len(left) > 0 {
		m.t.Errorf("the account objects: %q, and has the snapshots %+v", wrong, left)
	}
	if n := m.moves(); n != 1 {
		m.t.Errorf("the cloud has moved it %d times, want once", n)
	}
}

// A run that is killed at any request, before or after its effect, is continued by the next one: the data is the same, there is one
// disk, and the cloud has moved it once.
func TestRelocateKilledAtEachRequest(t *testing.T) {
	whole := newMovable(t, 300*time.Millisecond, nil)
	_, said, err := whole.run(nextZone)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	whole.isMoved()
	requests, write := whole.account.Exchanges(), 0
	for i, e := range requests {
		if e.Route == "DiskService/Relocate" {
			write = i
		}
	}
	if len(requests) < 8 {
		t.Fatalf("%d requests, want many", len(requests))
	}
	t.Logf("a run makes %d requests; that of the move is number %d", len(requests), write+1)
	for number := range requests {
		if testing.Short() && (number < write || number > write+1) {
			continue // make verify kills at each
		}
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%02d %s, after its effect %t", number+1, requests[number].Route, after), func(t *testing.T) {
				killedAt(t, number, after)
			})
		}
	}
}

func killedAt(t *testing.T, number int, after bool) {
	struck, killed, seen := make(chan string, 1), make(chan struct{}), 0
	m := newMovable(t, 300*time.Millisecond, func(c accounts.Call) faults.Effect {
		if seen++; seen != number+1 {
			return faults.Effect{}
		}
		struck <- c.Route
		if after {
			return faults.Effect{DelayAnswer: clock.Fixed(patience)}
		}
		<-killed
		return faults.Effect{Lost: faults.LostBefore}
	})
	cmd := m.command(nextZone)
	ok(t, cmd.Start())
	route := <-struck
	if after && route == "DiskService/Relocate" {
		eventually(t, "it takes effect", func() bool { return m.moves() > 0 })
	}
	ok(t, cmd.Process.Kill())
	close(killed)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the program ended by itself: %v", err)
	}
	if n := m.moves(); n > 1 || n == 0 && after && route == "DiskService/Relocate" {
		t.Errorf("%d moves were begun before the end", n)
	}
	if _, said, err := m.run(nextZone); err != nil || !strings.Contains(said, "is in "+nextZone) {
		t.Errorf("the second run: %v\n%s", err, said)
	}
	m.isMoved()
}

// An interrupted run ends at once, says that the move goes on, and the next one waits for it.
func TestRelocateInterrupted(t *testing.T) {
	m := newMovable(t, 3*time.Second, nil)
	cmd := m.command(nextZone)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ok(t, cmd.Start())
	eventually(t, "the cloud moves it", func() bool { return m.moves() > 0 })
	ok(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), "goes on") {
		t.Errorf("%v, want that it ends before the move and says that it goes on:\n%s", err, stderr.String())
	}
	if _, said, err := m.run(nextZone); err != nil {
		t.Errorf("the next run: %v\n%s", err, said)
	}
	m.isMoved()
}

// Of two runs at once to one zone both end well, and the cloud moves the volume once. A run says what it waits for.
func TestRelocateTwiceAtOnce(t *testing.T) {
	m := newMovable(t, 3*time.Second, nil)
	var both sync.WaitGroup
	all := make(chan string, 2)
	for range 2 {
		both.Go(func() {
			_, said, err := m.run(nextZone)
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			all <- said
		})
	}
	both.Wait()
	if said := <-all + <-all; !strings.Contains(said, "waiting for disk "+string(m.volume.ID)+" to be moved from ru-central1-a to "+nextZone) {
		t.Errorf("neither says what it waits for:\n%s", said)
	}
	m.isMoved()
}

// pv writes the PersistentVolume of the volume to a file.
func (m *movable) pv(edit ...string) string {
	m.t.Helper()
	text := strings.NewReplacer(slices.Concat(edit, []string{"HANDLE", string(m.volume.ID)})...).Replace(`{
  "apiVersion": "v1", "kind": "PersistentVolume",
  "metadata": {
    "name": "pvc-1", "uid": "4f2b", "resourceVersion": "77", "creationTimestamp": "2026-11-01T00:00:00Z",
    "annotations": {"pv.kubernetes.io/provisioned-by": "yandex.csi.cloudblock.io"}, "labels": {"team": "shop"},
    "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection"]
  },
  "spec": {
    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "cloudblock-yandex",
    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "namespace": "shop", "uid": "9c1e", "resourceVersion": "70"},
    "csi": {"driver": "yandex.csi.cloudblock.io", "fsType": "ext4", "volumeHandle": "HANDLE", "volumeAttributes": {"revision": 12345678901234567}},
    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
      {"key": "topology.yandex.csi.cloudblock.io/zone", "operator": "In", "values": ["ru-central1-a"]}]}]}}
  },
  "status": {"phase": "Bound"}
}`)
	file := filepath.Join(m.t.TempDir(), "pv.json")
	ok(m.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// What is refused is refused before anything is sent that changes something, and says why.
func TestRelocateRefuses(t *testing.T) {
	m := newMovable(t, 0, nil)
	theirs := m.create("test", "theirs")
	foreign, err := m.account.AddVolume(accounts.Volume{Name: "foreign"})
	ok(t, err)
	own, machine := string(m.volume.ID), m.account.Machines()[0]
	m.account.Attached(own, machine)
	m.account.ResetStats()
	for name, tc := range map[string]struct {
		id, zone string
		args     []string
		says     string
	}{
		"attached":                   {own, nextZone, nil, "attached to instance " + machine},
		"of another cluster":         {string(theirs.ID), nextZone, []string{"--unowned"}, `--cluster-id "test"`},
		"of nothing that says whose": {foreign, nextZone, nil, "--unowned"},
		"no such zone":               {foreign, "ru-central1-x", []string{"--unowned"}, "the zone ru-central1-x has no disks"},
		"no name of a zone":          {foreign, "Mars 1", []string{"--unowned"}, "no zone has such a name"},
		"in no placement group":      {foreign, nextZone, []string{"--unowned", "--placement-group=" + foreign}, "in no placement group"},
		"gone":                       {"epd00000000000000000", nextZone, nil, "not found"},
		"no id":                      {"../disk", nextZone, nil, "no disk has such an id"},
		"another's PV":               {own, nextZone, []string{"--pv=" + m.pv("HANDLE", "epd00000000000000000")}, "has the volume epd00000000000000000"},
		"another driver's PV":        {own, nextZone, []string{"--pv=" + m.pv(`"driver": "yandex`, `"driver": "linode`)}, "is of the driver linode"},
		"a PV with affinity to a host": {
			own, nextZone, []string{"--pv=" + m.pv("topology.yandex.csi.cloudblock.io/zone", "kubernetes.io/hostname")}, "kubernetes.io/hostname",
		},
		"a claim in the place of the PV": {own, nextZone, []string{"--pv=" + m.pv(`"PersistentVolume"`, `"PersistentVolumeClaim"`)}, "of the kind PersistentVolumeClaim"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, slices.Concat([]string{"relocate", tc.id, tc.zone}, m.flags, []string{"--cluster-id=prod"}, tc.args)...)
			out, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), tc.says) {
				t.Errorf("%v, want that it says %q:\n%s", err, tc.says, out)
			}
		})
	}
	if n := m.account.Stats().Writes; n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}

// Another cloud, and what is missing on the command line, is an error of the command line, and no request is sent.
func TestRelocateChecksItsCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"another cloud":     {[]string{"1", "fr", "--cloud=linode", "--cluster-id=c", "--credentials-file=f"}, "--cloud linode moves no volumes to another zone; these do: yandex"},
		"the node itself":   {[]string{"n/p/1", "b", "--cloud=local", "--local-pool=/p", "--node-id=n"}, "these do: yandex"},
		"no zone":           {[]string{"1", "--cloud=yandex"}, "needs VOLUME and ZONE"},
		"a patch of no PV":  {[]string{"1", "b", "--cloud=yandex", "--patch"}, "--patch: only with --pv"},
		"a flag of no sort": {[]string{"1", "b", "--moon"}, "-moon"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, append([]string{"relocate"}, tc.args...)...)
			out, _ := cmd.CombinedOutput() // its state is in the output
			if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), tc.says) {
				t.Errorf("it exits with %d, want 2 and %q:\n%s", cmd.ProcessState.ExitCode(), tc.says, out)
			}
		})
	}
}

// The PersistentVolume for the other zone is the old one but for the zone, the reclaim policy and what the cluster fills in, and the steps
// are in the order in which nothing can be lost. The patch changes the zone alone.
func TestRelocatePrintsWhatTheClusterNeeds(t *testing.T) {
	m := newMovable(t, 0, nil)
	replace := strings.NewReplacer(string(m.volume.ID), "HANDLE")
	for file, args := range map[string][]string{"relocate-pv": nil, "relocate-patch": {"--patch"}} {
		out, said, err := m.run(nextZone, append(args, "--pv="+m.pv())...)
		if err != nil || !json.Valid([]byte(out)) {
			t.Fatalf("%v\n%s\n%s", err, said, out)
		}
		golden.Check(t, file+".json", replace.Replace(out))
		golden.Check(t, file+".txt", replace.Replace(said))
	}
	if _, said, err := m.run(nextZone); err != nil || !strings.Contains(said, "--pv") {
		t.Errorf("without --pv: %v, want that it says what is missing:\n%s", err, said)
	}
	if n := m.moves(); n != 1 {
		t.Errorf("the cloud has moved it %d times, want once", n)
	}
}
