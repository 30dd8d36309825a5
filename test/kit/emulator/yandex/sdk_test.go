package yandex_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	ycsdk "github.com/yandex-cloud/go-sdk/v2"
	sdkcredentials "github.com/yandex-cloud/go-sdk/v2/credentials"
	"github.com/yandex-cloud/go-sdk/v2/pkg/endpoints"
	"github.com/yandex-cloud/go-sdk/v2/pkg/iamkey"
	sdkoperation "github.com/yandex-cloud/go-sdk/v2/pkg/operation"
	"github.com/yandex-cloud/go-sdk/v2/pkg/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// sdk builds the real SDK, pointed at an address of the emulated folder.
func sdk(t *testing.T, url string, how grpc.DialOption, who sdkcredentials.Credentials) *ycsdk.SDK {
	t.Helper()
	_, address, _ := strings.Cut(url, "//")
	built, err := ycsdk.Build(t.Context(), options.WithCredentials(who), options.WithoutKeepalive(),
		options.WithEndpointsResolver(endpoints.NewSingleEndpointResolver(address, how)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = built.Shutdown(context.Background()) }) // the folder may have gone before
	return built
}

func connection(t *testing.T, built *ycsdk.SDK, method protoreflect.FullName) grpc.ClientConnInterface {
	t.Helper()
	conn, err := built.GetConnection(t.Context(), method)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func keyOf(t *testing.T, c *emulator.Cloud) *iamkey.Key {
	t.Helper()
	text, err := c.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := iamkey.ReadFromJSONBytes(text)
	if err != nil {
		t.Fatalf("the SDK does not read the key: %v\n%s", err, text)
	}
	return key
}

func TestTheRealSDKMakesADisk(t *testing.T) {
	c := emulator.Start(t, emulator.Options{
		Durations: emulator.Each(clock.Fixed(50 * time.Millisecond)), Rules: emulator.Rules{FreshNotFound: 2},
	})
	tlsURL, authority, err := c.ListenTLS(t.Context(), "127.0.0.1:0", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("no certificate in %s", authority)
	}
	key, err := sdkcredentials.ServiceAccountKey(keyOf(t, c))
	if err != nil {
		t.Fatal(err)
	}
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	secure := grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}))
	for _, row := range []struct {
		name, disk, url string
		how             grpc.DialOption
		who             sdkcredentials.Credentials
	}{
		{"over plain text, with a key", "pvc-1", c.URL, plain, key},
		{"over TLS, with a key", "pvc-2", tlsURL, secure, key},
		{"over plain text, with a token", "pvc-3", c.URL, plain, sdkcredentials.IAMToken(c.Token)},
	} {
		t.Run(row.name, func(t *testing.T) {
			built := sdk(t, row.url, row.how, row.who)
			disks := compute.NewDiskServiceClient(connection(t, built, "yandex.cloud.compute.v1.DiskService.Create"))
			started, err := disks.Create(t.Context(), request(row.disk))
			if err != nil {
				t.Fatal(err)
			}
			op, err := sdkoperation.NewOperation(started, &sdkoperation.Concretization{
				Poll: func(ctx context.Context, id string, opts ...grpc.CallOption) (sdkoperation.YCOperation, error) {
					conn, err := built.GetConnection(ctx, "yandex.cloud.operation.OperationService.Get")
					if err != nil {
						return nil, err
					}
					return operationpb.NewOperationServiceClient(conn).Get(ctx, &operationpb.GetOperationRequest{OperationId: id}, opts...)
				},
				MetadataType: (*compute.CreateDiskMetadata)(nil), ResponseType: (*compute.Disk)(nil),
			})
			if err != nil {
				t.Fatal(err)
			}
			made, err := op.WaitInterval(t.Context(), func(int) time.Duration { return 20 * time.Millisecond })
			if err != nil {
				t.Fatal(err)
			}
			if d, is := made.(*compute.Disk); !is || d.GetName() != row.disk || d.GetStatus() != compute.Disk_READY {
				t.Errorf("Wait() = %v, want the disk %s, ready", made, row.disk)
			}
		})
	}
}

func TestWhoIsUnknownIsRefused(t *testing.T) {
	c := emulator.Start(t, emulator.Options{})
	other := emulator.Start(t, emulator.Options{Seed: 2})
	foreign, err := sdkcredentials.ServiceAccountKey(keyOf(t, other))
	if err != nil {
		t.Fatal(err)
	}
	key, err := sdkcredentials.ServiceAccountKey(keyOf(t, c))
	if err != nil {
		t.Fatal(err)
	}
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	call := func(who sdkcredentials.Credentials) codes.Code {
		zones := compute.NewZoneServiceClient(connection(t, sdk(t, c.URL, plain, who), "yandex.cloud.compute.v1.ZoneService.List"))
		_, err := zones.List(t.Context(), &compute.ListZonesRequest{})
		return status.Code(err)
	}
	for _, row := range []struct {
		name string
		who  sdkcredentials.Credentials
		want codes.Code
	}{
		{"a key of this folder", key, codes.OK},
		{"a key of another folder", foreign, codes.Unauthenticated},
		{"a token that was never issued", sdkcredentials.IAMToken("t1.made-up"), codes.Unauthenticated},
		{"no token", &sdkcredentials.NoCredentials{}, codes.Unauthenticated},
	} {
		if got := call(row.who); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	c.RevokeKeys()
	if got := call(key); got != codes.Unauthenticated {
		t.Errorf("a key that was revoked: %s, want %s", got, codes.Unauthenticated)
	}
}

func TestEveryServiceIsWhereTheCallerIs(t *testing.T) {
	c := emulator.Start(t, emulator.Options{})
	list, err := endpoint.NewApiEndpointServiceClient(dial(t, c)).List(t.Context(), &endpoint.ListApiEndpointsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range list.GetEndpoints() {
		found[e.GetId()] = e.GetAddress()
	}
	for _, id := range []string{"compute", "iam", "operation", "endpoint"} {
		if want := strings.TrimPrefix(c.URL, "http://"); found[id] != want {
			t.Errorf("%s is at %q, want %q", id, found[id], want)
		}
	}
}
