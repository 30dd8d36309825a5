package vm

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// KubeletDir is the kubelet's folder in the guest.
const KubeletDir = "/var/lib/kubelet"

// The machine's identity.
const (
	MachineID  = "4711" // of a droplet and of a Linode, in the SMBIOS too
	InstanceID = "fhmvm000000000000001"
)

// metadataFiles are the answers of the metadata services of the three clouds.
var metadataFiles = map[string]string{
	"metadata/v1/id":                   MachineID,
	"metadata/v1/region":               "fra1",
	"v1/token":                         `["token"]`,
	"v1/instance":                      `{"id": ` + MachineID + `, "region": "eu-central", "specs": {"memory": 16384}}`,
	"computeMetadata/v1/instance/id":   InstanceID,
	"computeMetadata/v1/instance/zone": "projects/b1g0000000000000001/zones/ru-central1-a",
}

// Node is a node program in a guest, and the client of its socket.
type Node struct {
	csi.NodeClient
	guest *Guest
	cloud string
	under string
	flags []string
	conn  *grpc.ClientConn
}

// StartNode starts the node program of a cloud in the guest, next to those of other clouds, and waits until it
// answers. A node program of the same cloud must have been stopped.
func (g *Guest) StartNode(ctx context.Context, cloud string, flags ...string) (*Node, error) {
	return g.StartNodeUnder(ctx, "", cloud, flags...)
}

// StartNodeUnder is StartNode by a command of the guest that runs what follows it.
func (g *Guest) StartNodeUnder(ctx context.Context, command, cloud string, flags ...string) (*Node, error) {
	n := &Node{guest: g, cloud: cloud, under: command, flags: flags}
	conn, err := g.Client(n.Socket())
	if err != nil {
		return nil, err
	}
	n.conn, n.NodeClient = conn, csi.NewNodeClient(conn)
	return n, n.Start(ctx)
}

// Client returns a client of a program's socket in the guest. Its calls wait until the program answers.
func (g *Guest) Client(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return g.Dial(ctx, path) }))
}

// Folder is where the node program keeps its socket and its records.
func (n *Node) Folder() string { return KubeletDir + "/plugins/" + n.cloud }

// Socket is the path of its socket in the guest.
func (n *Node) Socket() string { return n.Folder() + "/csi.sock" }

// Log returns what the program has logged since the guest's boot.
func (n *Node) Log(ctx context.Context) (string, error) {
	return n.guest.Run(ctx, "cat /run/node-"+n.cloud+".log")
}

// ServeMetadata puts up the metadata services of the three clouds.
func (g *Guest) ServeMetadata(ctx context.Context) error {
	var script strings.Builder
	for path, content := range metadataFiles {
		fmt.Fprintf(&script, "mkdir -p $(dirname /run/metadata/%[1]s) && printf %%s '%[2]s' >/run/metadata/%[1]s\n", path, content)
	}
	if out, err := g.Run(ctx, script.String()); err != nil {
		return fmt.Errorf("put up the metadata service: %w: %s", err, out)
	}
	return nil
}

// Start starts the program again, after Stop or a reset of the guest, and puts up the metadata service.
func (n *Node) Start(ctx context.Context) error {
	if err := n.guest.ServeMetadata(ctx); err != nil {
		return err
	}
	return n.StartWith(ctx)
}

// StartWith starts the program with more flags, in the environment of build/node.Dockerfile.
func (n *Node) StartWith(ctx context.Context, flags ...string) error {
	args := slices.Concat([]string{"--cloud=" + n.cloud, "--endpoint=unix://" + n.Socket(), "--kubelet-dir=" + KubeletDir}, n.flags, flags)
	out, err := n.guest.Run(ctx, fmt.Sprintf(`
		mkdir -p %[1]s %[2]s/pods
		GODEBUG=disablethp=1 setsid %[5]s /usr/local/bin/cloudblock-node '%[3]s' >>/run/node-%[4]s.log 2>&1 </dev/null &
		echo $! >/run/node-%[4]s.pid`, n.Folder(), KubeletDir, strings.Join(args, "' '"), n.cloud, n.under))
	if err != nil {
		return fmt.Errorf("start the node program: %w: %s", err, out)
	}
	if err := n.waitServing(ctx); err != nil {
		log, _ := n.Log(context.WithoutCancel(ctx))
		return fmt.Errorf("the node program does not answer: %w\n%s", err, log)
	}
	return nil
}

// waitServing waits until the program answers, or has ended.
func (n *Node) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return poll(ctx, func() error {
		// Of a call on a connection that a reset of the guest has broken, only the time limit tells.
		try, done := context.WithTimeout(ctx, tryLimit)
		defer done()
		n.conn.ResetConnectBackoff()
		_, err := n.NodeGetInfo(try, &csi.NodeGetInfoRequest{})
		if err == nil {
			return nil
		}
		if _, ended := n.guest.Run(ctx, "kill -0 $(cat /run/node-"+n.cloud+".pid)"); ended != nil {
			cancel(ended)
		}
		return err
	})
}

// Stop ends the program with a signal, TERM or KILL, and waits until it has ended.
func (n *Node) Stop(ctx context.Context, signal string) error {
	_, err := n.guest.Run(ctx, fmt.Sprintf(`
		pid=$(cat /run/node-%s.pid)
		kill -%s $pid
		while kill -0 $pid 2>/dev/null; do sleep 0.1; done`, n.cloud, signal))
	return err
}

// Close closes the client. The program goes on.
func (n *Node) Close() error { return n.conn.Close() }
