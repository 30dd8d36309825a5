// Package storagesuite is the upstream Kubernetes e2e suite cut down to "External Storage": the
// specs that test any CSI driver from a description of it (--storage.testdriver). Run it as
//
//	e2e-storage.test --storage.testdriver=FILE --kubeconfig=... --kubectl-path=... --provider=skeleton
//
// or several processes at once with the ginkgo command of the same version.
package storagesuite

import (
	"flag"
	"os"
	"testing"

	// The ginkgo command takes a folder or a binary for a suite by this import.
	_ "github.com/onsi/ginkgo/v2"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	"k8s.io/kubernetes/test/e2e/testing-manifests"

	// The specs themselves.
	_ "k8s.io/kubernetes/test/e2e/storage/external"

	// What the framework needs to show a failed spec's pods and events.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(testing_manifests.GetE2ETestingManifestsFS())
	// The files that the driver's description names.
	testfiles.AddFileSource(testfiles.RootFileSource{Root: framework.TestContext.RepoRoot})
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// TestExternalStorage runs the specs that the flags select.
func TestExternalStorage(t *testing.T) { e2e.RunE2ETests(t) }
