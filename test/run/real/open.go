// Package real runs the contract suite and one volume's life against a real account, with the smallest volumes, and
// says what they show of the API. `make e2e-real` is the way to run it; docs/contributing/testing.md has the flags.
//
// Everything that a run makes has a name that begins with the run's own prefix. Nothing else is ever changed.
package real

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Account says which account a run uses and how to reach it.
type Account struct {
	// Cloud is what --cloud takes. Run is the run's own word.
	Cloud, Run string
	// TokenFile holds what --credentials-file takes.
	TokenFile string
	// Region, on Yandex Cloud the zone; Folder is Yandex Cloud's.
	Region, Folder string
	// Endpoint is another address of the API; empty: the cloud's own.
	Endpoint string
	// Machines are the ids of machines in Region that volumes may be attached to.
	Machines []cloud.NodeID
	// Cassette records what is said to the API; nil: nothing is recorded.
	Cassette *Cassette
	// Hurry reads what is under way every few milliseconds and minds no limit of requests, for an emulated account.
	Hurry bool
}

// runWord is what Account.Run looks like: with a number of two digits behind it, it fits into Linode's prefix of labels.
var runWord = regexp.MustCompile(`^[0-9a-f]{6}$`)

// Check reports every mistake, before any request is sent.
func (a Account) Check() error {
	var mistakes []error
	if _, known := clouds[a.Cloud]; !known {
		mistakes = append(mistakes, fmt.Errorf("CLOUD=%q: known are %s", a.Cloud, strings.Join(slices.Sorted(maps.Keys(clouds)), ", ")))
	}
	if !runWord.MatchString(a.Run) {
		mistakes = append(mistakes, fmt.Errorf("RUN=%q: want six hexadecimal digits", a.Run))
	}
	if a.Region == "" {
		mistakes = append(mistakes, errors.New("REGION is not given: the region, on Yandex Cloud the zone, of the volumes"))
	}
	if a.Cloud == "yandex" && a.Folder == "" {
		mistakes = append(mistakes, errors.New("FOLDER is not given: the id of the folder"))
	}
	if n := len(a.Machines); n != 0 && n != 2 {
		mistakes = append(mistakes, fmt.Errorf("MACHINES has %d ids, want none or two", n))
	}
	if _, err := a.token(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("TOKEN_FILE: no credentials, and so no request: %w", err))
	}
	return errors.Join(mistakes...)
}

func (a Account) token() (string, error) {
	if a.TokenFile == "" {
		return "", errors.New("it is not given")
	}
	text, err := os.ReadFile(a.TokenFile)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = errors.New("it is empty")
	}
	return strings.TrimSpace(string(text)), err
}

// Prefix begins the names of what part n of the run makes. The run's is that of every part.
func (a Account) Prefix(n int) string {
	return fmt.Sprintf("%s%02s-", a.prefix(), strconv.FormatInt(int64(n), 36))
}

// maxParts is how many prefixes there are: two digits of base 36.
const maxParts = 36 * 36

func (a Account) prefix() string { return "cb" + a.Run }

// Backend is a cloud that is closed in the end.
type Backend interface {
	cloud.Cloud
	Close(ctx context.Context) error
}

// View is who looks at the account.
type View struct {
	// Part of the run; each has a prefix of names and clusters of its own, since parts use the same names of requests.
	Part int
	// Name of the part, for the cassette.
	Name string
	// Second: a second cluster in the account. Denied: credentials that the cloud does not accept.
	Second, Denied bool
}

func (v View) prefix(a Account) string { return a.Prefix(v.Part) }

func (v View) cluster(a Account) string {
	if v.Second {
		return v.prefix(a) + "two"
	}
	return v.prefix(a) + "one"
}

func (v View) config(a Account, token func() (string, error)) block.Config {
	cfg := block.Config{
		Token: token, Endpoint: a.Endpoint, Region: a.Region,
		ClusterID: v.cluster(a), NamePrefix: v.prefix(a), UserAgent: "cloudblock-e2e-real", SweepEvery: -1,
	}
	if a.Hurry {
		cfg.Tick, cfg.Limits = 4*time.Millisecond, []budget.Window{{Calls: 1 << 20, Per: time.Minute}}
		cfg.Busy = wait.Backoff{First: 2 * time.Millisecond, Max: 20 * time.Millisecond}
	}
	return cfg
}

// deniedToken opens no account.
const deniedToken = "cloudblock-no-such-token"

// Open makes a backend as the controller does. It sends nothing yet.
func (a Account) Open(ctx context.Context, v View) (Backend, error) {
	token := a.token
	if v.Denied {
		token = func() (string, error) { return deniedToken, nil }
	}
	return clouds[a.Cloud].open(ctx, a, v, token)
}

// transport keeps no connection, so that nothing of a part is left when it has ended.
func (a Account) transport(v View) http.RoundTripper {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: false,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
	}
	if a.Cassette == nil {
		return t
	}
	return a.Cassette.Around(t, v.Name)
}

// around is the same for the requests of Yandex Cloud.
func (a Account) around(v View) grpc.UnaryClientInterceptor {
	if a.Cassette == nil {
		return nil
	}
	return a.Cassette.Interceptor(v.Name)
}

// facts are what a run has to know of a cloud.
type facts struct {
	open func(ctx context.Context, a Account, v View, token func() (string, error)) (Backend, error)
	// size is that of the smallest volume.
	size cloud.Bytes
	// parameters are values of a volume that cost no more than the usual ones.
	parameters []cloud.Parameter
	// price of a GiB in an hour, in currency, and where it is published. A volume costs min. one hour.
	price              float64
	currency, priceURL string
	leftOut            []LeftOut
	assumptions        []Assumption
}

// The prices are those of the cheapest type of volume, for a month of 730 hours. Snapshots cost less.
var clouds = map[string]facts{
	"digitalocean": {
		open: func(ctx context.Context, a Account, v View, token func() (string, error)) (Backend, error) {
			return digitalocean.New(ctx, digitalocean.Config{Config: v.config(a, token), Transport: a.transport(v)})
		},
		size: cloud.GiB, price: 0.10 / 730, currency: "USD", priceURL: "https://www.digitalocean.com/pricing/volumes",
		leftOut: leftOutDigitalOcean, assumptions: assumptionsDigitalOcean,
	},
	"linode": {
		open: func(ctx context.Context, a Account, v View, token func() (string, error)) (Backend, error) {
			return linode.New(ctx, linode.Config{Config: v.config(a, token), Transport: a.transport(v)})
		},
		parameters: []cloud.Parameter{{Name: linode.ParamEncrypted, Value: "false"}},
		size:       10 * cloud.GiB, price: 0.10 / 730, currency: "USD", priceURL: "https://www.linode.com/pricing",
		assumptions: assumptionsLinode,
	},
	"yandex": {
		open: func(ctx context.Context, a Account, v View, token func() (string, error)) (Backend, error) {
			return yandex.New(ctx, yandex.Config{Config: v.config(a, token), Folder: a.Folder, Around: a.around(v)})
		},
		parameters: []cloud.Parameter{{Name: "blockSize", Value: "8Ki"}, {Name: "type", Value: "network-hdd"}},
		size:       cloud.GiB, price: 4.0 / 730, currency: "RUB", priceURL: "https://yandex.cloud/en/docs/compute/pricing",
		assumptions: assumptionsYandex,
	},
}
