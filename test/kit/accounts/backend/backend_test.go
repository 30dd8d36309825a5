package backend

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
)

// The node program reads the profile, the controller asks the backend: both are one plugin.
func TestABackendIsWhatItsProfileSays(t *testing.T) {
	for _, name := range accounts.Names() {
		a, err := accounts.Start(name, accounts.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Open(t.Context(), a, Config{ClusterID: "one", SweepEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		is := b.Capabilities()
		got := profile.Cloud{Scope: string(is.Scope), SnapshotZones: is.SnapshotZones, SnapshotBlocks: is.SnapshotBlocks}
		want, _ := profile.Of(name)
		if got.Scope != want.Scope || got.SnapshotZones != want.SnapshotZones || got.SnapshotBlocks != want.SnapshotBlocks {
			t.Errorf("%s: the backend is %+v, its profile %+v", name, got, want)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}
