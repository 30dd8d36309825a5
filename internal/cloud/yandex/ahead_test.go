package yandex_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// What is refused before a request, the exchange of the key or the list of addresses, says nothing about a disk: where it is
// NotFound, no disk was deleted and none was detached.
func TestARefusalBeforeTheRequestIsNotAboutTheDisk(t *testing.T) {
	for name, tc := range map[string]struct {
		service string
		code    codes.Code
		kind    fault.Kind
	}{
		"the account of the key is gone":    {"IamTokenService", codes.NotFound, fault.Denied},
		"the key is not accepted":           {"IamTokenService", codes.InvalidArgument, fault.Denied},
		"the key may not be exchanged":      {"IamTokenService", codes.PermissionDenied, fault.Denied},
		"tokens have a quota of their own":  {"IamTokenService", codes.ResourceExhausted, fault.Unavailable},
		"there is no list of addresses":     {"ApiEndpointService", codes.NotFound, fault.Unavailable},
		"the list of addresses is not ours": {"ApiEndpointService", codes.PermissionDenied, fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{})
				authorized := key(t, folder)
				vol := volume(t, open(t, folder), "a")
				attach(t, open(t, folder), vol.ID, node1)
				c := open(t, folder, func(cfg *yandex.Config) {
					cfg.Token = func() (string, error) { return authorized, nil }
					cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						err := send(ctx, method, ask, answer, conn, opts...)
						if strings.Contains(method, tc.service) {
							return status.Error(tc.code, "canary")
						}
						return err
					}
				})
				_, attached := c.Attach(t.Context(), vol.ID, node1)
				_, created := c.CreateVolume(t.Context(), request("b"))
				for what, err := range map[string]error{
					"Detach": c.Detach(t.Context(), vol.ID, node1), "DeleteVolume": c.DeleteVolume(t.Context(), vol.ID),
					"Attach": attached, "CreateVolume": created,
				} {
					if fault.Of(err) != tc.kind || !strings.Contains(err.Error(), "canary") || fault.FromCloud(err) {
						t.Errorf("%s = %v, want the kind %q, and the cloud's words", what, err, tc.kind)
					}
				}
			})
		})
	}
}

// A list with an address that cannot be used is asked for again by each call. It is no fault of a request, and no connection is left
// of it (the simulation would not end).
func TestAListWithABadAddressLeavesNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		bad := true
		c := open(t, folder, func(cfg *yandex.Config) {
			cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := send(ctx, method, ask, answer, conn, opts...)
				if list, is := answer.(*endpoint.ListApiEndpointsResponse); is && bad {
					list.Endpoints[3].Address = "%zz"
				}
				return err
			}
		})
		for range 20 { // the addresses are opened in any order
			_, err := c.CreateVolume(t.Context(), request("a"))
			want(t, err, fault.Unavailable)
		}
		bad = false
		volume(t, c, "a")
	})
}

// While a token is still valid, a service of tokens that hangs delays requests for two seconds and no longer.
func TestATokenThatCannotBeRenewed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		began, asked := time.Now(), 0
		c := open(t, folder, func(cfg *yandex.Config) {
			cfg.Token = func() (string, error) { return "", nil }
			cfg.MachineToken = func(ctx context.Context) (yandex.Token, error) {
				if asked++; asked > 1 {
					<-ctx.Done()
					return yandex.Token{}, ctx.Err()
				}
				return yandex.Token{Text: folder.Token, Expires: began.Add(time.Hour)}, nil
			}
		})
		vol := volume(t, c, "a")
		time.Sleep(50 * time.Minute)
		for range 3 {
			began = time.Now()
			_, err := c.GetVolume(t.Context(), vol.ID)
			if waited := time.Since(began); err != nil || waited > 3*time.Second {
				t.Errorf("GetVolume = %v after %s", err, waited)
			}
		}
		if asked != 2 {
			t.Errorf("asked %d times for a token, want once again", asked)
		}
	})
}
