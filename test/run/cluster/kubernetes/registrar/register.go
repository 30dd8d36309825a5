package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar tells the kubelet, which watches the folder of sockets, where the driver is.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan error
}

// GetInfo names the driver and its socket.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus hears what the kubelet made of it. A refusal ends the program, so that
// the pod's restart tries again.
func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		log.Printf("the kubelet registered %s at %s", r.name, r.endpoint)
		return &registration.RegistrationStatusResponse{}, nil
	}
	select {
	case r.refused <- fmt.Errorf("the kubelet refuses %s: %s", r.name, status.GetError()):
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// register serves the registration of a driver until ctx ends or the kubelet refuses it.
func register(ctx context.Context, o options, name string) error {
	socket := filepath.Join(o.registerDir, name+"-reg.sock")
	// A socket of a registrar that was killed would make listening fail.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &registrar{name: name, endpoint: o.kubeletPath, refused: make(chan error, 1)}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	go func() { cancel(server.Serve(listener)) }()
	if o.httpEndpoint != "" {
		go func() { cancel(serveHealth(ctx, o.httpEndpoint, present(socket))) }()
	}
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case err = <-r.refused:
	}
	server.Stop() // removes the socket: the kubelet then knows that the driver is gone
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// present is healthy as long as the kubelet can find the socket.
func present(socket string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(socket); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
