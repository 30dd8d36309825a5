// Command demo takes volumes of every kind through their whole life on this machine: it starts the
// two real programs in a temporary folder, on `local` or on an emulated cloud, talks to their CSI sockets
// as the sidecars and the kubelet do, writes and verifies real bytes, and removes everything again, also
// when it is interrupted.
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

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
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
	if os.Geteuid() != 0 {
		return errors.New("loop devices and mounts need root: run it with sudo")
	}
	begin := time.Now()
	dir, err := os.MkdirTemp("", "cloudblock-demo-")
	if err != nil {
		return err
	}
	show := &stage{out: os.Stdout}
	opts := programs.Options{Bin: bin, Dir: dir}
	if cloud != "local" {
		if show.cloud, err = emulate(ctx, cloud, filepath.Join(dir, "account")); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		defer func() { err = errors.Join(err, show.cloud.Close()) }()
		opts.Cloud = show.cloud
	}
	// Whatever happens, nothing is left: Clean works without the programs, too.
	defer func() { err = errors.Join(err, programs.Clean(dir)) }()

	if show.pair, err = programs.Start(ctx, opts); err != nil {
		return err
	}
	defer show.pair.Stop()

	show.intro()
	for _, act := range show.acts() {
		if err := act(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted; everything it made is removed")
			}
			return errors.Join(err, show.keepLogs())
		}
	}
	return show.epilogue(dir, time.Since(begin))
}

// emulate starts an account that enforces what the real one does, with its data in a folder.
func emulate(ctx context.Context, cloud, dir string) (accounts.Account, error) {
	const change = 300 * time.Millisecond // long enough to be seen
	account, err := accounts.Start(cloud, accounts.Options{DataDir: dir, Takes: clock.Fixed(change), Real: true})
	if err != nil {
		return nil, err
	}
	return account, account.Listen(ctx, "127.0.0.1:0")
}

// acts are what is shown: every kind of volume on `local`, and on a cloud what it is for.
func (s *stage) acts() []func(context.Context) error {
	if s.cloud != nil {
		return []func(context.Context) error{s.cloudFilesystem, s.block, s.crash, s.cutAttach}
	}
	return []func(context.Context) error{
		func(ctx context.Context) error { return s.filesystem(ctx, "ext4") },
		func(ctx context.Context) error { return s.filesystem(ctx, "xfs") },
		s.block,
		s.copies,
		s.hardLimit,
		s.crash,
	}
}
