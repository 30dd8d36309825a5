package yandex_test

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// listening returns a folder on the loopback address, in the clear and over TLS with a certificate of its own.
func listening(t *testing.T) (folder *emulator.Cloud, tls string, authority *x509.CertPool) {
	t.Helper()
	folder = emulator.Start(t, emulator.Options{})
	folder.AddInstance(emulator.Instance{ID: machine1})
	folder.AddInstance(emulator.Instance{ID: machine2, NoServiceAccount: true})
	url, certificate, err := folder.ListenTLS(t.Context(), "127.0.0.1:0", "127.0.0.1")
	must(t, err)
	authority = x509.NewCertPool()
	if !authority.AppendCertsFromPEM(certificate) {
		t.Fatal("the emulator's certificate is none")
	}
	return folder, url, authority
}

func key(t *testing.T, folder *emulator.Cloud) string {
	t.Helper()
	text, err := folder.NewKey()
	must(t, err)
	secret, err := yandex.CheckCredentials(string(text))
	must(t, err)
	return secret
}

// Each way to reach the API with each kind of credentials; the addresses of the services come from the endpoint.
func TestWaysToTheAPI(t *testing.T) {
	folder, tls, authority := listening(t)
	authorized := key(t, folder)
	machine := func(id string) func(context.Context) (yandex.Token, error) {
		return func(ctx context.Context) (yandex.Token, error) {
			text, expires, err := machine.YandexToken(ctx, folder.Metadata(id))
			return yandex.Token{Text: text, Expires: expires}, err
		}
	}
	for name, tc := range map[string]struct {
		secret   string
		endpoint string
		roots    *x509.CertPool
		machine  func(context.Context) (yandex.Token, error)
		kind     fault.Kind
		words    string
	}{
		"a key in the clear":                    {secret: authorized, endpoint: folder.URL},
		"a key over TLS":                        {secret: authorized, endpoint: tls, roots: authority},
		"a token over TLS":                      {secret: folder.Token, endpoint: tls, roots: authority},
		"the machine's account over TLS":        {endpoint: tls, roots: authority, machine: machine(machine1)},
		"the machine's account in the clear":    {endpoint: folder.URL, machine: machine(machine1)},
		"a machine without an account":          {endpoint: folder.URL, machine: machine(machine2), kind: fault.Denied, words: "no service account"},
		"no credentials and no machine":         {endpoint: folder.URL, kind: fault.Denied, words: "no credentials"},
		"a token that is none":                  {secret: "another", endpoint: folder.URL, kind: fault.Denied, words: "Unauthenticated"},
		"a certificate that nobody trusts":      {secret: authorized, endpoint: tls, kind: fault.Unavailable, words: "certificate"},
		"nobody is there":                       {secret: authorized, endpoint: "http://127.0.0.1:1", kind: fault.Unavailable, words: "no connection"},
		"nobody is there, and there is a token": {secret: folder.Token, endpoint: "http://127.0.0.1:1", kind: fault.Unavailable, words: "no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, folder, func(cfg *yandex.Config) {
				cfg.Dial, cfg.Endpoint, cfg.RootCAs, cfg.MachineToken = nil, tc.endpoint, tc.roots, tc.machine
				cfg.Token = func() (string, error) { return tc.secret, nil }
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := c.Check(ctx)
			if want(t, err, tc.kind); err != nil && !strings.Contains(err.Error(), tc.words) {
				t.Errorf("%q does not say %q", err, tc.words)
			}
			if err != nil && strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("%q repeats the key", err)
			}
			if _, err := c.CreateVolume(ctx, request(name)); fault.Of(err) != tc.kind {
				t.Errorf("CreateVolume = %v, want the kind %q: nothing was sent", err, tc.kind)
			}
		})
	}
}

// A key that was replaced is used at once; one that was revoked is Denied when its token ends, and the API's word
// that a token has ended is asked for a new one.
func TestCredentialsThatChange(t *testing.T) {
	folder := start(t, emulator.Options{})
	var secret atomic.Value
	secret.Store(key(t, folder))
	c := open(t, folder, func(cfg *yandex.Config) {
		cfg.Token = func() (string, error) { return secret.Load().(string), nil }
	})
	must(t, c.Check(t.Context()))
	must(t, c.Check(t.Context()))
	if n := folder.Stats().Routes["Create IamTokenService/Create"] + folder.Stats().Routes["IamTokenService/Create"]; n > 1 {
		t.Errorf("the key was exchanged %d times for two requests", n)
	}
	folder.RevokeTokens()
	must(t, c.Check(t.Context())) // with a new token for the same key
	folder.RevokeKeys()
	folder.RevokeTokens()
	want(t, c.Check(t.Context()), fault.Denied)
	_, err := c.CreateVolume(t.Context(), request("never"))
	want(t, err, fault.Denied)
	left(t, folder, 0)
	secret.Store(key(t, folder))
	must(t, c.Check(t.Context()))
	cannot := errors.New("the file is gone")
	broken := open(t, folder, func(cfg *yandex.Config) { cfg.Token = func() (string, error) { return "", cannot } })
	if err := broken.Check(t.Context()); !errors.Is(err, cannot) || fault.Of(err) != fault.Unavailable {
		t.Errorf("Check without a file = %v", err)
	}
}

// P3: what is wrong with credentials is said without a word of them.
func TestCheckCredentials(t *testing.T) {
	folder := start(t, emulator.Options{})
	good := key(t, folder)
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"an authorized key":         {good, true},
		"with white space":          {"\n" + good + "\n\n", true},
		"a token":                   {"t1.9euelZqcanary", true},
		"nothing":                   {" \n", false},
		"two words":                 {"canary canary", false},
		"a key without an id":       {strings.Replace(good, `"id"`, `"description"`, 1), false},
		"a key of nobody":           {strings.Replace(good, `"service_account_id"`, `"description"`, 1), false},
		"a key with another secret": {`{"id":"ajecanary","service_account_id":"ajecanary","private_key":"canary"}`, false},
		"half a key":                {good[:len(good)/2], false},
		"another JSON":              {`{"canary":"canary"}`, false},
		"far too long":              {strings.Repeat("canary", 10000), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := yandex.CheckCredentials(tc.text)
			if (err == nil) != tc.ok || tc.ok && got != strings.TrimSpace(tc.text) {
				t.Errorf("CheckCredentials = %d characters, %v", len(got), err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "PRIVATE")) {
				t.Errorf("%q repeats what it was given", err)
			}
		})
	}
}

// P1: a refusal for want of the API's budget is a delay, also of a write; a write that nobody waits for any more is
// not sent after it.
func TestTheAPIsBudgetIsADelay(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		registry := prometheus.NewRegistry()
		counted, err := budget.NewMetrics(registry)
		must(t, err)
		c := open(t, folder, func(cfg *yandex.Config) {
			cfg.Limits, cfg.Metrics.Budget = []budget.Window{{Calls: 100, Per: time.Minute}}, counted
		})
		refuse := func(route, words string) *faults.Armed {
			return folder.Arm(emulator.Fault{Route: route, Times: 1, Effect: faults.Effect{Status: int(codes.ResourceExhausted), Message: words}})
		}
		const words = "compute.diskCreateRequestsPerSecond.rate rate quota limit exceed: allowed 10 requests"
		created, looked := refuse(createDisk, words), refuse("OperationService/Get", "other words")
		create(t, c, request("a"))
		if created.Hits() != 1 || looked.Hits() != 1 {
			t.Errorf("the create was refused %d times, and the look at its operation %d times, want once each", created.Hits(), looked.Hits())
		}
		// The code that the alert CloudblockAPIThrottled looks for.
		metrics.Of(t, registry).Want(t, metrics.Samples{`cloudblock_api_requests_total{code="429",method="grpc",route="DiskService/Create"}`: 1})
		refuse(createDisk, "Rate limit exceeded")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = c.CreateVolume(ctx, request("b"))
		want(t, err, fault.Unavailable) // and not uncertain: it was not carried out
		time.Sleep(10 * time.Minute)
		left(t, folder, 1)
	})
}

// The cloud's silence is waited for for a minute, not for ever, and the outcome is open then.
func TestASilentCloudIsWaitedForForAMinute(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		c := open(t, folder, func(cfg *yandex.Config) { cfg.SweepEvery = -1 })
		folder.Arm(emulator.Fault{Route: createDisk, Times: 1, Effect: faults.Effect{DelayAnswer: clock.Fixed(time.Hour)}})
		began := time.Now()
		_, err := c.CreateVolume(t.Context(), request("a"))
		want(t, err, fault.Uncertain)
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// A12: what the cloud says about the next look at an operation is kept to, and an operation that is not known right
// after its begin is running.
func TestOperationsAreAskedForAsTheCloudWants(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Rules: emulator.Rules{PollInterval: 5, FreshNotFound: 3}, Durations: emulator.Each(clock.Fixed(12 * time.Second))})
		c := open(t, folder)
		vol := volume(t, c, "a")
		folder.ResetStats()
		began := time.Now()
		attach(t, c, vol.ID, node1)
		looks := 0
		for route, n := range folder.Stats().Routes {
			if strings.Contains(route, "OperationService/Get") {
				looks += n
			}
		}
		if took := time.Since(began); looks > 3+4 || took > 18*time.Second {
			t.Errorf("%d looks at an operation of 12 s in %s, though the cloud wants one in 5 s", looks, took)
		}
	})
}

// P3: what a key has signed opens the API for an hour, as the token does that it is exchanged for. An answer that repeats it
// reaches no error.
func TestTheSignedStatementLeavesInNoAnswer(t *testing.T) {
	folder := start(t, emulator.Options{})
	authorized := key(t, folder)
	var signed string
	c := open(t, folder, func(cfg *yandex.Config) {
		cfg.Token = func() (string, error) { return authorized, nil }
		cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			exchange, is := ask.(*iam.CreateIamTokenRequest)
			if !is {
				return send(ctx, method, ask, answer, conn, opts...)
			}
			signed = exchange.GetJwt()
			_ = send(ctx, method, ask, answer, conn, opts...) // it leaves
			return status.Error(codes.Internal, "cannot parse "+signed)
		}
	})
	err := c.Check(t.Context())
	if err == nil || signed == "" || strings.Contains(err.Error(), signed[:20]) {
		t.Errorf("the error is %v, want one without the statement %.10q...", err, signed)
	}
}
