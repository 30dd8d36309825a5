package yandex_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// authorized is an authorized key as its file has it.
type authorized struct {
	ID             string `json:"id"`
	ServiceAccount string `json:"service_account_id"`
	Private        string `json:"private_key"`
}

// sign makes a JWT of a header and claims.
func (k authorized) sign(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	block, _ := pem.Decode([]byte(k.Private))
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	noError(t, err)
	encode := func(v any) string {
		text, err := json.Marshal(v)
		noError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := encode(header) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPSS(rand.Reader, private.(*rsa.PrivateKey), crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	noError(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func TestAJWTIsChecked(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	text, err := c.NewKey()
	noError(t, err)
	var key authorized
	noError(t, json.Unmarshal(text, &key))
	tokens, now := iam.NewIamTokenServiceClient(dial(t, c)), time.Now()
	for _, row := range []struct {
		name           string
		header, claims map[string]any // what is different
		end            string         // what the JWT ends with instead
		want           codes.Code
	}{
		{name: "as the SDK makes it"},
		{name: "with a list of one audience", claims: map[string]any{"aud": []string{"https://iam.api.cloud.yandex.net/iam/v1/tokens"}}},
		{name: "another algorithm", header: map[string]any{"alg": "RS256"}, want: codes.Unauthenticated},
		{name: "an unknown key", header: map[string]any{"kid": "aje0"}, want: codes.Unauthenticated},
		{name: "another issuer", claims: map[string]any{"iss": "aje0"}, want: codes.Unauthenticated},
		{name: "another audience", claims: map[string]any{"aud": c.URL}, want: codes.Unauthenticated},
		{name: "for longer than an hour", claims: map[string]any{"exp": now.Add(2 * time.Hour).Unix()}, want: codes.Unauthenticated},
		{name: "of yesterday", claims: map[string]any{"iat": now.Add(-25 * time.Hour).Unix(), "exp": now.Add(-24 * time.Hour).Unix()}, want: codes.Unauthenticated},
		{name: "of tomorrow", claims: map[string]any{"iat": now.Add(24 * time.Hour).Unix(), "exp": now.Add(25 * time.Hour).Unix()}, want: codes.Unauthenticated},
		{name: "another signature", end: "AAAA", want: codes.Unauthenticated},
		{name: "no JWT", end: ".AAAA", want: codes.Unauthenticated},
	} {
		header := map[string]any{"alg": "PS256", "typ": "JWT", "kid": key.ID}
		claims := map[string]any{
			"iss": key.ServiceAccount, "aud": "https://iam.api.cloud.yandex.net/iam/v1/tokens", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		}
		maps.Copy(header, row.header)
		maps.Copy(claims, row.claims)
		jwt := key.sign(t, header, claims)
		jwt = jwt[:len(jwt)-len(row.end)] + row.end
		made, err := tokens.Create(t.Context(), &iam.CreateIamTokenRequest{Identity: &iam.CreateIamTokenRequest_Jwt{Jwt: jwt}})
		if status.Code(err) != row.want {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
		if err != nil {
			continue
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.GetIamToken())
		if _, err := a.disks.List(ctx, &compute.ListDisksRequest{FolderId: c.Folder}); err != nil || time.Until(made.GetExpiresAt().AsTime()) < 11*time.Hour {
			t.Errorf("%s: the token is worth %v until %v", row.name, err, made.GetExpiresAt().AsTime())
		}
	}
	if stats := c.Stats(); stats.Reads != 2 || stats.Writes != 0 {
		t.Errorf("Stats() = %+v, want that tokens do not count", stats)
	}
}
