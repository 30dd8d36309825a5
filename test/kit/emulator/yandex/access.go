package yandex

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

const (
	serviceAccount = "ajeemulated0account0"
	keyPrefix      = "aje"
	tokenLifetime  = 12 * time.Hour
	jwtLifetime    = time.Hour
	jwtSkew        = time.Minute
	jwtAudience    = "https://iam.api.cloud.yandex.net/iam/v1/tokens"
)

// access is who may call the API.
type access struct {
	keys    map[string]*rsa.PublicKey // by the key's id
	tokens  map[string]time.Time      // when each ends, by the wall clock
	revoked bool                      // Cloud.Token is no good any more
}

func newAccess() access {
	return access{keys: map[string]*rsa.PublicKey{}, tokens: map[string]time.Time{}}
}

// privateKey is the key pair of all emulated service accounts of this process: to make one takes long.
var privateKey = sync.OnceValues(func() (*rsa.PrivateKey, error) {
	const bits = 2048
	return rsa.GenerateKey(rand.Reader, bits)
})

// NewKey makes an authorized key of the folder's service account and returns it as the JSON text that the
// real tools write.
func (c *Cloud) NewKey() ([]byte, error) {
	private, err := privateKey()
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	id := c.newID(keyPrefix, "key", "")
	c.mu.Lock()
	c.access.keys[id] = &private.PublicKey
	c.mu.Unlock()
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return json.MarshalIndent(map[string]string{
		"id": id, "service_account_id": serviceAccount, "created_at": c.clock.Now().UTC().Format(time.RFC3339),
		"key_algorithm": "RSA_2048", "public_key": text("PUBLIC KEY", public),
		"private_key": "PLEASE DO NOT REMOVE THIS LINE! Yandex.Cloud SA Key ID <" + id + ">\n" + text("PRIVATE KEY", secret),
	}, "", "   ")
}

// RevokeKeys makes all authorized keys useless; the tokens that they brought live on.
func (c *Cloud) RevokeKeys() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.access.keys)
}

// RevokeTokens makes all tokens useless, Cloud.Token too.
func (c *Cloud) RevokeTokens() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.access.tokens)
	c.access.revoked = true
}

// Tokens are those that were given out and are good still.
func (c *Cloud) Tokens() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.access.tokens))
}

// newToken returns a token and when it ends. The lock is held.
func (c *Cloud) newToken() (token string, ends time.Time) {
	token, ends = "t1."+c.dice.UUID("token", ""), time.Now().Add(c.clock.WallSpan(tokenLifetime))
	c.access.tokens[token] = ends
	return token, ends
}

// open are the calls that need no token.
var open = map[string]bool{"ApiEndpointService/List": true, "IamTokenService/Create": true}

// admit checks the token of a call and the account's right to make it.
func (c *Cloud) admit(route string, header metadata.MD) error {
	if open[route] {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	token, bearer := strings.CutPrefix(firstOf(header, "authorization"), "Bearer ")
	if !bearer || (token != c.Token || c.access.revoked) && !time.Now().Before(c.access.tokens[token]) {
		return c.refuse(&badToken)
	}
	if c.rules.Rights != nil && !slices.Contains(c.rules.Rights, route) {
		service, _, _ := strings.Cut(route, "Service/")
		return c.refuse(denied.with(strings.ToLower(service)))
	}
	return nil
}

// kindOf tells reads from writes.
func kindOf(route string) rpc.Kind {
	_, method, _ := strings.Cut(route, "/")
	switch {
	case open[route]:
		return rpc.Aside
	case method == "Get" || strings.HasPrefix(method, "List"):
		return rpc.Read
	}
	return rpc.Write
}

type tokenService struct {
	iam.UnimplementedIamTokenServiceServer
	c *Cloud
}

// Create exchanges a JWT that an authorized key has signed for a token.
func (s tokenService) Create(_ context.Context, ask *iam.CreateIamTokenRequest) (*iam.CreateIamTokenResponse, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.checkJWT(ask.GetJwt()); why != "" {
		return nil, c.refuse(badJWT.with(why))
	}
	token, ends := c.newToken()
	return &iam.CreateIamTokenResponse{IamToken: token, ExpiresAt: timestamppb.New(ends)}, nil
}

// checkJWT says what is wrong with a JWT.
func (c *Cloud) checkJWT(text string) string {
	parts := strings.Split(text, ".")
	var header struct{ Alg, Kid string }
	var claims struct {
		Iss      string
		Aud      audience
		Iat, Exp float64
	}
	const signed = 3
	if len(parts) != signed || !decode(parts[0], &header) || !decode(parts[1], &claims) {
		return "it cannot be read"
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	public := c.access.keys[header.Kid]
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	now, issued, ends := time.Now(), time.Unix(int64(claims.Iat), 0), time.Unix(int64(claims.Exp), 0)
	switch {
	case header.Alg != "PS256":
		return "the algorithm must be PS256"
	case public == nil:
		return "unknown key " + header.Kid
	case err != nil || rsa.VerifyPSS(public, crypto.SHA256, sum[:], signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) != nil:
		return "the signature is wrong"
	case claims.Iss != serviceAccount:
		return "the issuer is not the key's service account"
	case claims.Aud != jwtAudience:
		return "the audience must be " + jwtAudience
	case ends.Sub(issued) > jwtLifetime || issued.After(now.Add(jwtSkew)) || !ends.After(now):
		return "it is not of this hour"
	}
	return ""
}

func decode(part string, v any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, v) == nil
}

// audience is a text, or a list of one.
type audience string

// UnmarshalJSON reads either form.
func (a *audience) UnmarshalJSON(text []byte) error {
	var list []string
	if json.Unmarshal(text, &list) == nil && len(list) == 1 {
		*a = audience(list[0])
		return nil
	}
	return json.Unmarshal(text, (*string)(a))
}

// DriverRights are the calls that docs/backends/yandex.md wants rights for: all that the driver makes.
func DriverRights() []string {
	return []string{
		"DiskService/Create", "DiskService/Get", "DiskService/List", "DiskService/Update", "DiskService/Delete", "DiskService/ListOperations", "DiskService/Relocate",
		"InstanceService/Get", "InstanceService/AttachDisk", "InstanceService/DetachDisk", "InstanceService/ListOperations",
		"SnapshotService/Create", "SnapshotService/Get", "SnapshotService/List", "SnapshotService/Delete", "SnapshotService/ListOperations",
		"DiskPlacementGroupService/Get", "DiskTypeService/Get", "OperationService/Get",
	}
}
