// Command registrar does in the test cluster what two of the stock sidecars do, node-driver-registrar
// and livenessprobe, whose source is in no Go module. It takes their flags: with
// --kubelet-registration-path it makes the driver known to the kubelet, else it answers /healthz by
// asking the driver.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

type options struct {
	csiAddress   string
	kubeletPath  string
	registerDir  string
	httpEndpoint string
	healthPort   string
	probeTimeout time.Duration
	timeout      time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+o.csiAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	driver := csi.NewIdentityClient(conn)
	name, err := waitForName(ctx, driver, o.timeout)
	if err != nil {
		return err
	}
	log.Printf("the driver at %s is %s", o.csiAddress, name)
	if o.kubeletPath != "" {
		return register(ctx, o, name)
	}
	return serveHealth(ctx, o.healthAddress(), &probe{driver: driver, timeout: o.probeTimeout})
}

// parse reads the flags of both programs; the ones that change nothing here are taken and ignored.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("registrar", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.csiAddress, "csi-address", "/run/csi/socket", "the driver's socket in this container")
	flags.StringVar(&o.kubeletPath, "kubelet-registration-path", "", "the driver's socket as the kubelet sees it")
	flags.StringVar(&o.registerDir, "plugin-registration-path", "/registration", "the kubelet's folder of plugins")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", "", "host:port of /healthz")
	flags.StringVar(&o.healthPort, "health-port", "", "port of /healthz, the older way to say it")
	flags.DurationVar(&o.probeTimeout, "probe-timeout", time.Second, "how long the driver may take to answer a probe")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for the driver at start")
	flags.String("v", "", "ignored")
	flags.String("mode", "", "ignored")
	flags.String("metrics-address", "", "ignored")
	flags.Bool("enable-pprof", false, "ignored")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.csiAddress = strings.TrimPrefix(o.csiAddress, "unix://")
	if o.healthPort != "" && o.httpEndpoint != "" {
		return o, errors.New("--health-port and --http-endpoint exclude each other")
	}
	return o, nil
}

// healthAddress is where the liveness probe answers.
func (o options) healthAddress() string {
	switch {
	case o.httpEndpoint != "":
		return o.httpEndpoint
	case o.healthPort != "":
		return ":" + o.healthPort
	default:
		return ":9808"
	}
}

// waitForName asks until the driver answers, since all containers of a pod start at once.
func waitForName(ctx context.Context, driver csi.IdentityClient, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := driver.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", fmt.Errorf("ask the driver for its name: %w", err)
	}
	if reply.GetName() == "" {
		return "", errors.New("the driver has no name")
	}
	return reply.GetName(), nil
}
