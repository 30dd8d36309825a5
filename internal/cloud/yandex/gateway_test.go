package yandex_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// A gateway before the API answers with a page in place of the API. That is not the cloud's answer: it says nothing about rights or
// what the cloud has, and the outcome of a write is unknown. It is not kept either: no list of addresses in that answer does not mean
// that the endpoint has none.
func TestAPageOfAGatewayIsNoAnswerOfTheCloud(t *testing.T) {
	folder := emulator.Start(t, emulator.Options{})
	to, err := url.Parse(folder.URL)
	must(t, err)
	clear := new(http.Protocols)
	clear.SetUnencryptedHTTP2(true)
	var page atomic.Int64
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		Transport:     &http.Transport{Protocols: clear},
		FlushInterval: -1,
	}
	gateway := &http.Server{Protocols: clear, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := page.Load(); code != 0 {
			http.Error(w, "<html>"+r.Header.Get("Authorization"), int(code))
			return
		}
		through.ServeHTTP(w, r)
	})}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = gateway.Serve(listener) }()
	t.Cleanup(func() { _ = gateway.Close() })
	c := open(t, folder, func(cfg *yandex.Config) { cfg.Dial, cfg.Endpoint = nil, "http://"+listener.Addr().String() })

	page.Store(http.StatusNotFound)
	want(t, c.Check(t.Context()), fault.Unavailable)
	page.Store(0)
	must(t, c.Check(t.Context()))
	vol := volume(t, c, "a")
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusBadGateway} {
		page.Store(int64(code))
		_, err := c.GetVolume(t.Context(), vol.ID)
		want(t, err, fault.Unavailable)
		if strings.Contains(err.Error(), folder.Token) {
			t.Errorf("%v has the token, which the page repeats", err)
		}
		_, err = c.ExpandVolume(t.Context(), vol.ID, 2*vol.Size)
		want(t, err, fault.Unavailable)
		want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Uncertain)
	}
	page.Store(0)
	must(t, c.DeleteVolume(t.Context(), vol.ID))
}

// What the client itself says of an answer that it could not read has the codes of refusals. A write with such an answer may have been
// carried out.
func TestTheClientsOwnWordsRefuseNothing(t *testing.T) {
	for words, code := range map[string]codes.Code{
		"stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM":   codes.ResourceExhausted,
		"stream terminated by RST_STREAM with error code: INADEQUATE_SECURITY": codes.PermissionDenied,
		"grpc: message after decompression larger than max (5 vs. 4)":          codes.ResourceExhausted,
		`grpc: Decompressor is not installed for grpc-encoding "br"`:           codes.Unimplemented,
	} {
		folder := start(t, emulator.Options{})
		lost := true
		c := open(t, folder, func(cfg *yandex.Config) {
			cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := send(ctx, method, ask, answer, conn, opts...)
				if lost && strings.HasSuffix(method, "/Create") {
					return status.Error(code, words)
				}
				return err
			}
		})
		_, err := c.CreateVolume(t.Context(), request("a"))
		want(t, err, fault.Uncertain, words)
		left(t, folder, 1)
		lost = false
		create(t, stack(c), request("a"))
		left(t, folder, 1)
	}
}
