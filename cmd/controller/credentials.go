package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// tokenFile is a file with an API token or other credentials. It is read each time, which costs little in comparison with a request
// to a cloud, so a new token is noticed at once.
type tokenFile struct {
	path string
	// check refuses invalid credentials; nil: they are one token.
	check func(text string) (string, error)

	mu   sync.Mutex
	log  *zap.Logger
	last driver.Secret // the content when the file was last usable
	has  bool
	// lost: the file is unusable now, and last is used instead.
	lost bool
}

// longestToken is far longer than any cloud's token.
const longestToken = 4096

// read returns the token. While the file is being replaced, it may be missing or empty; read then returns the last token, which is
// as valid as before.
func (f *tokenFile) read() (string, error) {
	raw, err := os.ReadFile(f.path)
	var token string
	if err == nil {
		check := f.check
		if check == nil {
			check = checkToken
		}
		token, err = check(string(raw))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logChange(err)
	switch {
	case err == nil:
		f.last, f.has = driver.NewSecret(token), true
		return token, nil
	case f.has:
		return f.last.Reveal(), nil
	default:
		return "", fmt.Errorf("--credentials-file %s: %w", f.path, err)
	}
}

// logChange logs when the file becomes unusable, and when it becomes usable again.
func (f *tokenFile) logChange(err error) {
	lost := err != nil && f.has
	if lost == f.lost {
		return
	}
	f.lost = lost
	switch {
	case f.log == nil:
	case lost:
		f.log.Warn("the credentials file cannot be used; the program continues with what it held before",
			zap.String("file", f.path), zap.Error(err))
	default:
		f.log.Info("the credentials file can be used again", zap.String("file", f.path))
	}
}

// watch reports in the log and as a metric that the content of the file is not used.
func (f *tokenFile) watch(around surroundings, guard *account) error {
	f.mu.Lock()
	f.log = around.log
	f.mu.Unlock()
	return register(around.registry, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cloudblock_credentials_unreadable",
		Help: "1 while the credentials file cannot be used and the program continues with what it held before, else 0.",
	}, func() float64 {
		_, err := f.read()
		refused := guard.refusal()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil || refused != nil || f.lost {
			return 1
		}
		return 0
	}))
}

// checkToken refuses text that cannot be a token, and never has it in the error.
func checkToken(text string) (string, error) {
	token := strings.TrimSpace(text)
	switch {
	case token == "":
		return "", errors.New("the token is empty")
	case len(token) > longestToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("it holds something else than one token")
	default:
		return token, nil
	}
}

// checkEndpoint accepts the address of an API. Credentials are sent there, so the connection must not be readable on the way.
func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("not of the form https://host[:port]")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("%s: only scheme, host and port are wanted", u.Redacted())
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("%s: the credentials would be readable on the way; http:// is for loopback addresses only", endpoint)
	default:
		return nil
	}
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// readCertificates reads a file of certificates.
func readCertificates(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certificates := x509.NewCertPool()
	if !certificates.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: there is no certificate in PEM form in it", path)
	}
	return certificates, nil
}
