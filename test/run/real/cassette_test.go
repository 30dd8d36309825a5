package real

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// secrets are one of each kind that an account has.
var secrets = map[string]string{
	"a token":                     "dop_v1_5f0c1d2e3b4a59687766554433221100ffeeddccbbaa99887766554433221100",
	"an IAM token":                "t1.9euelZqbjpWdyZ6Uz5rOlI-VnZaMlu3rnpWai8uTmZyKzJCZ.signature",
	"a JWT":                       "eyJhbGciOiJQUzI1NiJ9.eyJpc3MiOiJhamUifQ.c2lnbmF0dXJl",
	"a private key":               "-----BEGIN PRIVATE KEY-----MIIEvQIBADAN-----END PRIVATE KEY-----",
	"an e-mail address":           "ops.team@customer.example",
	"a user's name":               "jane-doe",
	"an IPv4 address":             "203.0.113.77",
	"an IPv6 address":             "2001:db8:77::4f2a",
	"the id of the account":       "6f1c2d3e-aaaa-4bbb-8ccc-1234567890ab",
	"the id of a folder":          "b1gabcdefghijklmnopq",
	"the id of a machine":         "97255173",
	"a machine's name":            "payroll-database-primary",
	"another volume's name":       "quarterly-figures",
	"a tag":                       "project:bluebird",
	"the key of a label":          "cost-centre-4711",
	"a description":               "holds the merger documents",
	"an address of a person":      "221b Baker Street",
	"a serial number":             "SN-88213-X",
	"a word of letters as a name": "bluebird",
}

// answering puts a secret wherever an answer can have it.
func answering(secret string) any {
	return map[string]any{
		"id": secret, "label": secret, "name": secret, "tags": []string{secret}, "labels": map[string]string{secret: secret},
		"linode_label": secret, "user": map[string]any{"email": secret, "profile": []any{map[string]any{"x": secret}}},
		"filesystem_path": "/dev/disk/by-id/scsi-0Linode_Volume_" + secret, "unknown_field": secret, "description": secret,
		"errors": []any{map[string]any{"reason": "the volume '" + secret + "' is busy: " + secret + ".", "field": "label"}},
		"status": "active", "size": 20, "linode_id": nil, "region": "us-ord", "created": "2026-01-02T03:04:05",
	}
}

func TestACassetteHasNoSecrets(t *testing.T) {
	for kind, secret := range secrets {
		t.Run(kind, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Request-Id", secret)
				w.Header().Set("X-Oauth-Scopes", "volumes:read_write")
				w.Header().Set("Set-Cookie", "session="+secret)
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(answering(secret))
			}))
			defer server.Close()
			var c Cassette
			client := &http.Client{Transport: c.Around(http.DefaultTransport, "Life")}
			word := strings.NewReplacer(" ", "", "/", "").Replace(secret)
			body := fmt.Sprintf(`{"label": %q, "config": {"secret": %q}}`, secret, secret)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v4/volumes/77123?name="+word+"&page=1", strings.NewReader(body))
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("X-Filter", fmt.Sprintf(`{"label": %q, "+or": [{"label": "cbabc123-x"}]}`, secret))
			answer, err := client.Do(req)
			must(t, err)
			must(t, answer.Body.Close())
			yandexExchange(t, &c, secret)
			text := written(t, &c)
			for _, form := range []string{secret, word, strings.Trim(fmt.Sprintf("%q", secret), `"`)} {
				if strings.Contains(text, form) {
					t.Errorf("the cassette has %q:\n%s", form, text)
				}
			}
			for _, kept := range []string{`"us-ord"`, `"active"`, `2026-01-02T03:04:05`, `cbabc123-x`, `volumes:read_write`, `page=1`, `"size": 20`, "is busy"} {
				if !strings.Contains(text, kept) {
					t.Errorf("the cassette lacks %s, which says how the API behaves:\n%s", kept, text)
				}
			}
		})
	}
}

// yandexExchange records requests by gRPC with the secret in them: one with an answer, a refusal, and one for credentials.
func yandexExchange(t *testing.T, c *Cassette, secret string) {
	t.Helper()
	answered := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		reply.(*compute.Disk).Name, reply.(*compute.Disk).FolderId = secret, secret
		return nil
	}
	refused := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		return status.Errorf(codes.FailedPrecondition, "disk %q is in use by %s", secret, secret)
	}
	issued := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		reply.(*iam.CreateIamTokenResponse).IamToken = secret
		return nil
	}
	record := c.Interceptor("Life")
	ask := &compute.GetDiskRequest{DiskId: secret}
	must(t, record(t.Context(), "/yandex.cloud.compute.v1.DiskService/Get", ask, &compute.Disk{}, nil, answered))
	if err := record(t.Context(), "/yandex.cloud.compute.v1.DiskService/Get", ask, &compute.Disk{}, nil, refused); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the interceptor returns %v, want the refusal", err)
	}
	must(t, record(t.Context(), "/yandex.cloud.iam.v1.IamTokenService/Create",
		&iam.CreateIamTokenRequest{Identity: &iam.CreateIamTokenRequest_Jwt{Jwt: secret}}, &iam.CreateIamTokenResponse{}, nil, issued))
}

func written(t *testing.T, c *Cassette) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cassette.json")
	must(t, c.Write(file, "cbabc123"))
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// The same object has the same replacement in a path, in a body, and in a sentence that comes before it.
func TestReplacementsAreTheSameEverywhere(t *testing.T) {
	c := Cassette{exchanges: []recorded.Exchange{
		{Method: "POST", Path: "/v4/volumes/97255173/attach", Answer: json.RawMessage(`{"errors": [{"reason": "Volume 97255173 is attached to payroll"}]}`)},
		{Method: "GET", Path: "/v4/volumes/97255173", Answer: json.RawMessage(`{"id": 97255173, "linode_label": "payroll", "size": 97255173}`)},
	}}
	var got []recorded.Exchange
	must(t, json.Unmarshal([]byte(written(t, &c)), &got))
	id := strings.TrimPrefix(got[1].Path, "/v4/volumes/")
	var volume struct {
		ID, Size json.Number
		Label    string `json:"linode_label"`
	}
	must(t, json.Unmarshal(got[1].Answer, &volume))
	if id == "97255173" || got[0].Path != "/v4/volumes/"+id+"/attach" || volume.ID.String() != id || volume.Size != "97255173" {
		t.Errorf("the ids are %s, %s and %s, the size %s", got[0].Path, got[1].Path, volume.ID, volume.Size)
	}
	if want := "Volume " + id + " is attached to " + volume.Label; !strings.Contains(string(got[0].Answer), want) {
		t.Errorf("the refusal is %s, want %q", got[0].Answer, want)
	}
}
