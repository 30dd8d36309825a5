package yandex

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	"github.com/yandex-cloud/go-sdk/v2/pkg/endpoints"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// services are the families of services and what the cloud calls the address of each.
var services = map[string]string{
	"yandex.cloud.compute.":   "compute",
	"yandex.cloud.iam.":       "iam",
	"yandex.cloud.operation.": "operation",
}

// A directory knows the addresses of the services. The cloud lists them at the endpoint; an endpoint that has
// no such list, or lacks a service, serves it itself. The SDK has the same, but asks when it is made and with
// the system's certificates only.
type directory struct {
	home      *endpoints.Endpoint
	list      endpoint.ApiEndpointServiceClient
	dialing   []grpc.DialOption
	plaintext bool
	inMemory  bool

	asking gate
	found  map[string]*endpoints.Endpoint // by id; nil until the list was read
}

var _ endpoints.EndpointsResolver = (*directory)(nil)

func newDirectory(cfg Config, conn grpc.ClientConnInterface) (*directory, error) {
	address, err := addressOf(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	d := &directory{
		list: endpoint.NewApiEndpointServiceClient(conn), asking: newGate(), inMemory: cfg.Dial != nil,
		dialing: []grpc.DialOption{transportOf(cfg)}, plaintext: strings.HasPrefix(cfg.Endpoint, "http://"),
	}
	if cfg.Dial != nil {
		d.dialing = append(d.dialing, grpc.WithContextDialer(cfg.Dial))
	}
	d.home = d.at(address)
	return d, nil
}

// at is the service at an address. The SDK keeps one connection for each that is made here.
func (d *directory) at(address string) *endpoints.Endpoint {
	if d.inMemory {
		address = "passthrough:///" + address
	}
	return &endpoints.Endpoint{Addr: address, DialOptions: d.dialing}
}

// Endpoint returns where a method is served.
func (d *directory) Endpoint(ctx context.Context, method protoreflect.FullName, _ ...grpc.CallOption) (*endpoints.Endpoint, error) {
	for family, id := range services {
		if strings.HasPrefix(string(method), family) {
			return d.service(ctx, id)
		}
	}
	return d.home, nil
}

func (d *directory) service(ctx context.Context, id string) (*endpoints.Endpoint, error) {
	if err := d.asking.enter(ctx); err != nil {
		return nil, err
	}
	defer d.asking.leave()
	if d.found == nil {
		found, err := d.read(ctx)
		if err != nil {
			return nil, err
		}
		d.found = found
	}
	if e := d.found[id]; e != nil {
		return e, nil
	}
	return d.home, nil
}

// read asks the endpoint for the addresses.
func (d *directory) read(ctx context.Context) (map[string]*endpoints.Endpoint, error) {
	list, err := d.list.List(ctx, &endpoint.ListApiEndpointsRequest{})
	if a := answerOf(err); a != nil && a.code == codes.Unimplemented {
		return map[string]*endpoints.Endpoint{}, nil
	}
	if err != nil {
		return nil, about(err, "ask for the addresses of the cloud's services")
	}
	found := map[string]*endpoints.Endpoint{}
	for _, e := range list.GetEndpoints() {
		if e.GetAddress() == "" {
			continue
		}
		if d.plaintext && !d.inMemory && !onThisMachine(e.GetAddress()) {
			return nil, fmt.Errorf("the endpoint says that %s is at %s, where the credentials would be readable on the way; use https://: %w",
				e.GetId(), e.GetAddress(), fault.Denied)
		}
		if d.home.Addr == e.GetAddress() {
			found[e.GetId()] = d.home
			continue
		}
		found[e.GetId()] = d.at(e.GetAddress())
	}
	return found, nil
}

// onThisMachine reports whether an address never leaves the machine.
func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
