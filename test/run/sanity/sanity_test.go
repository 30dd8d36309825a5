// Package sanity runs csi-sanity, Kubernetes' conformance tests for CSI drivers, over every backend.
// It is a module of its own, so that its test framework stays out of the project's dependencies.
package sanity

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// bin is the folder with the two programs; only the suites that run them need it.
var bin = flag.String("bin", "../../../bin", "folder with cloudblock-controller and cloudblock-node")

// only names the backend that this process runs.
var only = flag.String("backend", "", "run the suite over this backend in this process; empty: over each in a process of its own")

// backend is one way to run csi-sanity.
type backend struct {
	name string
	// size is that of a volume, which csi-sanity doubles now and then.
	size int64
	// accessType is "mount" or "block", in csi-sanity's words.
	accessType string
	// start starts the driver in dir and returns the sockets of the controller and the node service.
	start func(t *testing.T, dir string) (controller, node string)
	// skips are the specs, by a part of their text, that are not run at all, each with the reason.
	skips map[string]string
	// unsupported are the reasons, in csi-sanity's words, for which it may skip a spec by itself,
	// each with ours. Any other skip fails the run.
	unsupported map[string]string
}

// backends is completed by the files of this package that carry the build tag e2e.
var backends = []backend{memoryBackend}

// TestSanity runs every backend's suite in a process of its own, as many side by side as -parallel allows:
// ginkgo allows one run per process, and most of each is waiting.
func TestSanity(t *testing.T) {
	for _, b := range backends {
		switch *only {
		case "":
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				b.runApart(t)
			})
		case b.name:
			b.run(t)
		}
	}
}

// shown is held while a process shows what it has to say.
var shown sync.Mutex

// runApart runs the suite in a process of its own, which ends before this one has to.
func (b backend) runApart(t *testing.T) {
	args := []string{"-test.run=^TestSanity$", "-test.v", "-bin=" + *bin, "-backend=" + b.name}
	if end, bounded := t.Deadline(); bounded {
		args = append(args, "-test.timeout="+time.Until(end.Add(-30*time.Second)).String())
	}
	out, err := exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
	shown.Lock()
	defer shown.Unlock()
	fmt.Printf("%s\n", out)
	if err != nil {
		t.Errorf("csi-sanity over %s: %v", b.name, err)
	}
}

// run runs the suite in this process.
func (b backend) run(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	dir := t.TempDir()
	config := sanity.NewTestConfig()
	config.ControllerAddress, config.Address = b.start(t, dir)
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(sized))
	config.ControllerDialOptions = append(config.ControllerDialOptions, grpc.WithChainUnaryInterceptor(sized))
	kubelet := filepath.Join(dir, "kubelet") // as the programs are started
	if err := os.MkdirAll(kubelet, 0o700); err != nil {
		t.Fatal(err)
	}
	config.TargetPath = filepath.Join(kubelet, "target")
	config.StagingPath = filepath.Join(kubelet, "staging")
	config.TestVolumeSize, config.TestVolumeExpandSize = b.size, 2*b.size
	config.TestVolumeAccessType = b.accessType
	config.TestVolumeMutableParameters = map[string]string{"tags": "suite=sanity"}
	config.RemoveTargetPath = os.RemoveAll
	config.TestNodeVolumeAttachLimit = true
	ginkgo.Describe(b.name+":", func() {
		sc := sanity.GinkgoTest(&config)
		ginkgo.AfterAll(sc.Finalize)
	}, ginkgo.Ordered, ginkgo.ContinueOnFailure)
	for text := range b.skips {
		suite.SkipStrings = append(suite.SkipStrings, "^.*"+b.name+":.*"+text)
	}
	ginkgo.ReportAfterSuite("counts", func(report ginkgo.Report) { b.count(t, report) })
	ginkgo.RunSpecs(t, "csi-sanity over "+b.name, suite, reporter)
}

// sized fills in the sizes that an answer keeps of its parts. csi-sanity compares a topology of an
// answer with one that it has sent, field by field down to those that protobuf keeps for itself, and
// sending fills these in.
func sized(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if m, ok := reply.(proto.Message); ok {
		proto.Size(m)
	}
	return err
}

// count prints how the specs went and fails the test for a skip that nobody explained.
func (b backend) count(t *testing.T, report ginkgo.Report) {
	var passed, failed int
	skipped := map[string]int{}
	for _, spec := range report.SpecReports {
		if !strings.Contains(spec.FullText(), b.name+":") {
			continue // what belongs to the suite as a whole
		}
		switch {
		case spec.State == types.SpecStatePassed:
			passed++
		case spec.State == types.SpecStateSkipped:
			skipped[b.reason(t, spec)]++
		case spec.Failed():
			failed++
		}
	}
	fmt.Printf("csi-sanity over %s: %d passed, %d failed\n", b.name, passed, failed)
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Printf("  %3d not run: %s\n", skipped[reason], reason)
	}
	if passed == 0 {
		t.Errorf("csi-sanity over %s: nothing passed", b.name)
	}
}

// reason says why a spec was skipped.
func (b backend) reason(t *testing.T, spec types.SpecReport) string {
	if spec.Failure.Message == "" {
		for text, why := range b.skips {
			if strings.Contains(spec.FullText(), text) {
				return why
			}
		}
	}
	if why, ok := b.unsupported[spec.Failure.Message]; ok {
		return spec.Failure.Message + ": " + why
	}
	t.Errorf("csi-sanity over %s: %s: skipped without a reason that is known: %q", b.name, spec.FullText(), spec.Failure.Message)
	return "unexplained"
}
