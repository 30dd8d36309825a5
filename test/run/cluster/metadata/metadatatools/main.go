// Command metadatatools does in the test cluster what the tools of external-snapshot-metadata do, snapshot-metadata-lister and
// snapshot-metadata-verifier, whose modules have no released version. It takes their flags, as far as the examples and the tests use them,
// and is one or the other by the name that it is called by. The client is the sidecar's own package iterator, which
// both tools are made of, too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/iterator"
	"k8s.io/client-go/rest"
)

const (
	lister   = "snapshot-metadata-lister"
	verifier = "snapshot-metadata-verifier"
)

type options struct {
	iterator.Args
	tool           string
	output         string
	source, target string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, tool string, args []string, out io.Writer) error {
	o, err := parse(tool, args)
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if o.Clients, err = iterator.BuildClients(config); err != nil {
		return err
	}
	if o.tool == verifier {
		return o.verify(ctx)
	}
	switch o.output {
	case "json":
		o.Emitter = &iterator.JSONEmitter{Writer: out}
	case "table":
		o.Emitter = &iterator.TableEmitter{Writer: out}
	default:
		return fmt.Errorf("unknown output format: %s", o.output)
	}
	return iterator.GetSnapshotMetadata(ctx, o.Args)
}

// parse reads the flags of both tools.
func parse(tool string, args []string) (options, error) {
	o := options{tool: tool}
	flags := flag.NewFlagSet(tool, flag.ContinueOnError)
	flags.StringVar(&o.Namespace, "n", "", "the namespace of the VolumeSnapshots")
	flags.StringVar(&o.SnapshotName, "s", "", "the VolumeSnapshot")
	flags.StringVar(&o.PrevSnapshotName, "p", "", "the earlier VolumeSnapshot; without one all that has data is reported")
	flags.StringVar(&o.SAName, "service-account", "", "whose token the sidecar gets (default: that of the pod's account)")
	flags.StringVar(&o.SANamespace, "service-account-namespace", "", "the namespace of that account")
	switch tool {
	case lister:
		flags.StringVar(&o.output, "o", "table", "table or json")
	case verifier:
		flags.StringVar(&o.source, "src", "", "the device of a volume that was restored from the snapshot")
		flags.StringVar(&o.target, "tgt", "", "the device that the blocks are written to")
	default:
		return o, fmt.Errorf("this program is called %s, and is %s or %s", tool, lister, verifier)
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%s takes no arguments but flags: %q", tool, flags.Args())
	}
	if tool == verifier && (o.source == "" || o.target == "") {
		return o, errors.New("both -src and -tgt are needed")
	}
	return o, nil
}

// verify copies the reported parts from one device to the other, and compares the two then.
func (o options) verify(ctx context.Context) error {
	source, err := os.Open(o.source)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(o.target, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	o.Emitter = &iterator.VerifierEmitter{SourceDevice: source, TargetDevice: target}
	return errors.Join(iterator.GetSnapshotMetadata(ctx, o.Args), target.Close())
}
