package yandex_test

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

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
