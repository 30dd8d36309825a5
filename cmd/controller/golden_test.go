package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/snapshots"
)

// The help is for people, and scripts may parse it.
func TestHelpIsAsFrozen(t *testing.T) {
	for file, args := range map[string][]string{
		"help.txt": {"--help"}, "help-volumes.txt": {"volumes", "--cloud=linode", "--help"},
		"help-doctor.txt": {"doctor", "--help"}, "help-relocate.txt": {"relocate", "--help"},
	} {
		t.Run(file, func(t *testing.T) {
			out, err := program(t, args...).CombinedOutput()
			ok(t, err)
			golden.Check(t, file, string(out))
		})
	}
}

// Scripts parse the list of a pool: a volume with a PersistentVolumeClaim and its snapshot.
func TestVolumesOfAPoolAreAsFrozen(t *testing.T) {
	p, dir := newPool(t)
	_, err := snapshots.Add(dir, newVolume(t, p, "kept").ID, "snapshot-1")
	ok(t, err)
	for _, output := range []string{"json", "table"} {
		out, err := volumes(t, dir, "--output="+output)
		ok(t, err)
		golden.Check(t, "volumes-local."+output, out, dir)
	}
}

// Scripts parse the list of an account: a volume that is attached, one that --claimed does not list, and a user's.
func TestVolumesOfACloudAreAsFrozen(t *testing.T) {
	a := newInCloud(t, "linode")
	used := a.create("prod", "used")
	a.create("prod", "unused")
	_, err := a.account.AddVolume(accounts.Volume{Name: "foreign"})
	ok(t, err)
	a.account.Attached(string(used.ID), a.account.Machines()[0])
	claimed := filepath.Join(t.TempDir(), "handles")
	ok(t, os.WriteFile(claimed, []byte(used.ID), 0o600))
	for _, output := range []string{"json", "table"} {
		out, err := a.volumes("--all", "--claimed="+claimed, "--output="+output)
		ok(t, err)
		golden.Check(t, "volumes-cloud."+output, out)
	}
}

// Scripts parse the findings: a pool whose disk is not mounted, an account without problems, and an invalid token.
func TestDoctorIsAsFrozen(t *testing.T) {
	a, dir := newInCloud(t, "linode"), t.TempDir()
	token := filepath.Join(dir, "token")
	ok(t, os.WriteFile(token, []byte("bad"), 0o600))
	for file, flags := range map[string][]string{
		"local":     {"--cloud=local", "--node-id=n", "--local-pool=" + dir + "/pool"},
		"cloud":     append(a.flags, "--cluster-id=prod"),
		"bad-token": append(without(a.flags, "credentials-file", "--credentials-file="+token), "--cluster-id=prod"),
	} {
		for _, output := range []string{"json", "table"} {
			out, _ := program(t, append([]string{"doctor", "--output=" + output, "--endpoint=unix://" + dir + "/c.sock"}, flags...)...).CombinedOutput() // its state is in the output
			golden.Check(t, "doctor-"+file+"."+output, string(out), dir)
		}
	}
}
