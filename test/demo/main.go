// Command demo takes volumes of every kind through their whole life on this machine: it starts the
// two real programs in a temporary folder, talks to their CSI sockets as the sidecars and the kubelet
// do, writes and verifies real bytes, and removes everything again, also when it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	bin := flag.String("bin", "bin", "folder with the two programs")
	cloud := flag.String("cloud", "local", "the backend to show")
	flag.Parse()
	err := run(ctx, *bin, *cloud)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, cloud string) (err error) {
	if cloud != "local" {
		return fmt.Errorf("there is no backend %q: known are local", cloud)
	}
	if os.Geteuid() != 0 {
		return errors.New("loop devices and mounts need root: run it with sudo")
	}
	begin := time.Now()
	dir, err := os.MkdirTemp("", "cloudblock-demo-")
	if err != nil {
		return err
	}
	// Whatever happens, nothing is left: Clean works without the programs, too.
	defer func() { err = errors.Join(err, programs.Clean(dir)) }()

	pair, err := programs.Start(ctx, programs.Options{Bin: bin, Dir: dir, Pool: filepath.Join(dir, "pool")})
	if err != nil {
		return err
	}
	defer pair.Stop()

	show := &stage{pair: pair, out: os.Stdout}
	show.intro()
	for _, act := range []func(context.Context) error{
		func(ctx context.Context) error { return show.filesystem(ctx, "ext4") },
		func(ctx context.Context) error { return show.filesystem(ctx, "xfs") },
		func(ctx context.Context) error { return show.filesystem(ctx, "btrfs") },
		show.block,
		show.copies,
		show.hardLimit,
		show.crash,
	} {
		if err := act(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted; everything it made is removed")
			}
			return fmt.Errorf("%w\n\nthe node program's last lines:\n%s\nthe controller's:\n%s",
				err, pair.Node.LogTail(), pair.Controller.LogTail())
		}
	}
	return show.epilogue(dir, time.Since(begin))
}
