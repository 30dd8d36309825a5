package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Install brings a program of the host into the guest, as /usr/local/bin/<its file's name>, on a disk.
func (g *Guest) Install(ctx context.Context, program string) error {
	name := filepath.Base(program)
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	const mib = 1 << 20
	disk, err := NewDisk(g.dir, Yandex, "program", (info.Size()+mib-1)/mib*mib)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(disk.File) }()
	out, err := os.OpenFile(disk.File, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := g.Plug(ctx, disk); err != nil {
		return err
	}
	kernel, err := g.WaitForLink(ctx, disk)
	if err != nil {
		return err
	}
	_, err = g.Run(ctx, fmt.Sprintf("head -c %d /dev/%s >/usr/local/bin/%[3]s && chmod 755 /usr/local/bin/%[3]s", info.Size(), kernel, name))
	return errors.Join(err, g.Unplug(ctx, disk))
}

// Controller is a controller program of the cloud "local" in a guest, and the client of its socket.
type Controller struct {
	csi.ControllerClient
	guest *Guest
	conn  *grpc.ClientConn
}

// StartController installs the controller program of the cloud "local" and starts it. Calls wait until it answers.
func (g *Guest) StartController(ctx context.Context, program string, flags ...string) (*Controller, error) {
	if err := g.Install(ctx, program); err != nil {
		return nil, fmt.Errorf("install the controller program: %w", err)
	}
	const folder = KubeletDir + "/plugins/local-controller"
	const socket = folder + "/csi.sock"
	args := append([]string{"--cloud=local", "--endpoint=unix://" + socket}, flags...)
	out, err := g.Run(ctx, fmt.Sprintf(`
		mkdir -p %s
		setsid /usr/local/bin/%s '%s' >/run/controller.log 2>&1 </dev/null &
		echo $! >/run/controller.pid`, folder, filepath.Base(program), strings.Join(args, "' '")))
	if err != nil {
		return nil, fmt.Errorf("start the controller program: %w: %s", err, out)
	}
	conn, err := g.Client(socket)
	if err != nil {
		return nil, err
	}
	return &Controller{ControllerClient: csi.NewControllerClient(conn), guest: g, conn: conn}, nil
}

// Stop ends the program and returns what it has logged.
func (c *Controller) Stop(ctx context.Context) (log string, err error) {
	log, err = c.guest.Run(ctx, "kill $(cat /run/controller.pid); cat /run/controller.log")
	return log, errors.Join(err, c.conn.Close())
}
