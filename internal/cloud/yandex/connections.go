package yandex

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// services are the families of services with the cloud's name for the address of each.
var services = map[string]string{
	"/yandex.cloud.compute.":   "compute",
	"/yandex.cloud.iam.":       "iam",
	"/yandex.cloud.operation.": "operation",
}

// connections has one connection for each address of the cloud's services. The cloud lists the addresses at the endpoint; an
// endpoint that has no such list, or lacks a service, serves it itself.
type connections struct {
	home      *grpc.ClientConn
	list      endpoint.ApiEndpointServiceClient
	dialing   []grpc.DialOption
	plaintext bool
	inMemory  bool

	asking mutex                       // guards what follows
	of     map[string]*grpc.ClientConn // by the service's id; nil until the list was read
}

// newConnections prepares the connection to the endpoint and sends nothing. read reads the list over it.
func newConnections(cfg Config, conn grpc.ClientConnInterface) (*connections, error) {
	cs := &connections{
		list: endpoint.NewApiEndpointServiceClient(conn), asking: newMutex(), inMemory: cfg.Dial != nil,
		plaintext: strings.HasPrefix(cfg.Endpoint, "http://"),
		dialing: []grpc.DialOption{
			transportOf(cfg), grpc.WithStatsHandler(departures{}), grpc.WithUserAgent(cfg.UserAgent),
			grpc.WithDisableServiceConfig(), // a record of the DNS could switch repeats on
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: answerPing, Timeout: answerPing}),
		},
	}
	if cfg.Around != nil {
		cs.dialing = append(cs.dialing, grpc.WithChainUnaryInterceptor(cfg.Around))
	}
	if cfg.Dial != nil {
		cs.dialing = append(cs.dialing, grpc.WithContextDialer(cfg.Dial))
	}
	var err error
	if cs.home, err = cs.open(addressOf(cfg.Endpoint)); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.InvalidArgument, err)
	}
	return cs, nil
}

// open prepares the connection to an address; the first request establishes it.
func (cs *connections) open(address string) (*grpc.ClientConn, error) {
	if cs.inMemory {
		address = "passthrough:///" + address
	}
	return grpc.NewClient(address, cs.dialing...)
}

// to returns the connection for a method.
func (cs *connections) to(ctx context.Context, method string) (*grpc.ClientConn, error) {
	for family, id := range services {
		if strings.HasPrefix(method, family) {
			return cs.service(ctx, id)
		}
	}
	return cs.home, nil
}

func (cs *connections) service(ctx context.Context, id string) (*grpc.ClientConn, error) {
	if err := cs.asking.enter(ctx); err != nil {
		return nil, err
	}
	defer cs.asking.leave()
	if cs.of == nil {
		of, err := cs.read(ctx)
		if err != nil {
			return nil, err
		}
		cs.of = of
	}
	if conn := cs.of[id]; conn != nil {
		return conn, nil
	}
	return cs.home, nil
}

// read gets the addresses from the endpoint.
func (cs *connections) read(ctx context.Context) (of map[string]*grpc.ClientConn, err error) {
	list, err := cs.list.List(ctx, &endpoint.ListApiEndpointsRequest{})
	if a := answerOf(err); a != nil && a.code == codes.Unimplemented {
		return map[string]*grpc.ClientConn{}, nil
	}
	if err != nil {
		return nil, before(err, "ask for the addresses of the cloud's services")
	}
	at := map[string]string{}
	for _, e := range list.GetEndpoints() {
		at[e.GetId()] = e.GetAddress()
	}
	of = map[string]*grpc.ClientConn{}
	for _, id := range services {
		address := at[id]
		if address == "" {
			continue
		}
		if cs.plaintext && !cs.inMemory && !onThisMachine(address) {
			err = fmt.Errorf("the endpoint says that %s is at %s, where the credentials would be readable on the way; use https://: %w",
				id, address, fault.Denied)
		} else if conn, failed := cs.open(address); failed != nil {
			err = fmt.Errorf("the endpoint says that %s is at %.80q: %w: %w", id, address, fault.Unavailable, failed)
		} else {
			of[id] = conn
		}
		if err != nil { // the next call reads the list again
			return nil, errors.Join(err, closeAll(of))
		}
	}
	return of, nil
}

func closeAll(of map[string]*grpc.ClientConn) (err error) {
	for _, conn := range of {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// close closes all connections. Requests must have ended.
func (cs *connections) close() error {
	return errors.Join(cs.home.Close(), closeAll(cs.of))
}

// transportOf is how connections to an endpoint are protected: TLS, or not at all for http://, which is for
// loopback addresses only.
func transportOf(cfg Config) grpc.DialOption {
	if strings.HasPrefix(cfg.Endpoint, "http://") {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12}))
}

// addressOf is the address of an endpoint, which Complete has checked, with the port.
func addressOf(endpoint string) string {
	u, _ := url.Parse(endpoint)
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
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
