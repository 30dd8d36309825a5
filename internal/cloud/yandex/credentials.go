package yandex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/yandex-cloud/go-sdk/v2/credentials"
	"github.com/yandex-cloud/go-sdk/v2/pkg/iamkey"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Token is what opens the API, for a while.
type Token struct {
	Text string
	// Expires is when it ends; zero: that is not known.
	Expires time.Time
}

const (
	// maxSecret is far more than a token or an authorized key has.
	maxSecret = 16 << 10
	// exchangeTimeout bounds one exchange of a key for a token.
	exchangeTimeout = 20 * time.Second
	// maxUsed bounds how long a token is used: one for which the rights of its account have changed is
	// replaced within this time.
	maxUsed = time.Hour
	// pauseAfterFailure is between two attempts to get a newer token while the old one is still good.
	pauseAfterFailure = 30 * time.Second
)

// CheckCredentials accepts the text of a credentials file: an authorized key of a service account as JSON, or
// an IAM token. It never repeats any of it.
func CheckCredentials(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case len(text) > maxSecret:
		return "", errors.New("it is too long to be an authorized key or an IAM token")
	case isKey(text):
		_, err := keyOf(text)
		return text, err
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("it holds neither an authorized key (JSON, as `yc iam key create` writes it) nor one IAM token")
	default:
		return text, nil
	}
}

func isKey(secret string) bool { return strings.HasPrefix(secret, "{") }

// keyOf reads an authorized key.
func keyOf(secret string) (credentials.ExchangeableCredentials, error) {
	key, err := iamkey.ReadFromJSONBytes([]byte(secret))
	switch {
	case err != nil: // whose text may repeat what it could not read
		return nil, errors.New("it is no authorized key: not the JSON that `yc iam key create` writes")
	case key.GetId() == "" || key.GetServiceAccountId() == "":
		return nil, errors.New("it is no authorized key of a service account: id or service_account_id is missing")
	}
	signer, err := credentials.ServiceAccountKey(key)
	if err != nil {
		return nil, errors.New("its private_key is not a private key in PEM form")
	}
	return signer, nil
}

// tokens hands out the token for each request. A secret that was replaced is used at once.
type tokens struct {
	// secret returns what the credentials file holds; empty means the machine's own account.
	secret func() (string, error)
	// machine asks for a token of the machine's account. exchange gets one for a signed statement.
	machine  func(ctx context.Context) (Token, error)
	exchange func(ctx context.Context, jwt string) (Token, error)

	asking  gate // of those that use what follows
	of      string
	current Token
	renew   time.Time
}

// A gate lets one in at a time, in no order.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
	}
}

func (g gate) leave() { <-g }

// get returns a token that is good as far as is known. not is one that is not: the API has refused it.
func (t *tokens) get(ctx context.Context, not string) (string, error) {
	secret, err := t.secret()
	if err != nil {
		return "", fmt.Errorf("%w: the credentials cannot be read: %w", fault.Unavailable, err)
	}
	if secret != "" && !isKey(secret) {
		return secret, nil
	}
	if err := t.asking.enter(ctx); err != nil {
		return "", err
	}
	defer t.asking.leave()
	usable := t.current.Text != "" && t.of == secret && t.current.Text != not &&
		(t.current.Expires.IsZero() || time.Now().Before(t.current.Expires))
	if usable && time.Now().Before(t.renew) {
		return t.current.Text, nil
	}
	fresh, err := t.ask(ctx, secret)
	if err != nil {
		if usable {
			t.renew = time.Now().Add(pauseAfterFailure)
			return t.current.Text, nil
		}
		return "", err
	}
	t.of, t.current, t.renew = secret, fresh, time.Now().Add(maxUsed)
	if left := time.Until(fresh.Expires); !fresh.Expires.IsZero() && left*3/4 < maxUsed {
		t.renew = time.Now().Add(left * 3 / 4)
	}
	return fresh.Text, nil
}

// ask gets a new token. It ends with the call that asks; the next call asks again.
func (t *tokens) ask(ctx context.Context, secret string) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	if secret == "" {
		token, err := t.machine(ctx)
		if err != nil {
			if fault.Of(err) == fault.None {
				err = fmt.Errorf("%w: %w", fault.Unavailable, err)
			}
			return Token{}, about(err, "ask for a token of the machine's service account")
		}
		return token, nil
	}
	key, err := keyOf(secret)
	if err != nil {
		return Token{}, fmt.Errorf("%w: the credentials: %w", fault.Denied, err)
	}
	request, err := key.IAMTokenRequest()
	if err != nil {
		return Token{}, fmt.Errorf("%w: the authorized key cannot sign", fault.Denied)
	}
	token, err := t.exchange(ctx, request.Token)
	switch a := answerOf(err); {
	case err == nil:
		return token, nil
	case a != nil && (a.code == codes.InvalidArgument || a.code == codes.NotFound || a.code == codes.FailedPrecondition):
		return Token{}, fmt.Errorf("the authorized key is not accepted; was it deleted, or its account?: %w: %w", fault.Denied, a)
	default:
		return Token{}, about(err, "exchange the authorized key for a token")
	}
}
