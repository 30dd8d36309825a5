package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

func TestFlagsOfACloudAreCheckedAllAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no-certificate")
	ok(t, os.WriteFile(file, []byte("token"), 0o600))
	good := []string{"--cloud=digitalocean", "--credentials-file=/token", "--cluster-id=prod"}
	with := func(more ...string) []string { return append(good[:len(good):len(good)], more...) }
	drivertest.WantRefused(t, refusal, map[string]drivertest.CommandLine{
		"no credentials":                    {[]string{"--cloud=digitalocean", "--cluster-id=prod"}, []string{"--credentials-file: required with --cloud digitalocean, or the environment variable DIGITALOCEAN_ACCESS_TOKEN"}},
		"no cluster id":                     {[]string{"--cloud=linode", "--credentials-file=/token"}, []string{"--cluster-id: required with --cloud linode: a name that no other cluster of the account has"}},
		"no cluster id in the list":         {[]string{"--cloud=yandex", "--cluster-id="}, []string{"--cluster-id: required with --cloud yandex"}},
		"credentials of a cloud on local":   {[]string{"--cloud=local", "--local-pool=/p", "--node-id=a", "--credentials-file=/x", "--region=fra1"}, []string{"--credentials-file", "--region"}},
		"a pool and a node in a cloud":      {with("--local-pool=/p", "--node-id=a"), []string{"--local-pool", "--node-id"}},
		"operations of a cloud on local":    {drivertest.Local("--operation-timeout=1m"), []string{"--operation-timeout: there is no such thing with --cloud local"}},
		"an API reached in plain text":      {with("--api-endpoint=http://api.example"), []string{"--api-endpoint: http://api.example: the credentials would be readable"}},
		"an API with a path":                {with("--api-endpoint=https://api.example/v2"), []string{"--api-endpoint"}},
		"an API without a scheme":           {with("--api-endpoint=api.example:443"), []string{"--api-endpoint"}},
		"an API with a password":            {with("--api-endpoint=https://u:p@api.example"), []string{"--api-endpoint"}},
		"a file without certificates":       {with("--api-ca-file=" + file), []string{"--api-ca-file"}},
		"a file that is not there":          {with("--api-ca-file=" + file + "-not"), []string{"--api-ca-file"}},
		"a region that is no slug":          {with("--region=Frankfurt 1"), []string{"--region"}},
		"a prefix that no name may have":    {with("--volume-name-prefix=Prod_"), []string{"--volume-name-prefix"}},
		"a prefix as long as a name":        {with("--volume-name-prefix=" + strings.Repeat("p", 40)), []string{"--volume-name-prefix"}},
		"a tag that the cloud refuses":      {with("--tag=team=a.b"), []string{"--tag"}},
		"a cluster id that it refuses":      {with("--cluster-id=prod.example"), []string{"--cluster-id"}},
		"an operation timeout of nothing":   {with("--operation-timeout=0s"), []string{"--operation-timeout"}},
		"a metadata service without scheme": {with("--metadata-endpoint=127.0.0.1"), []string{"--metadata-endpoint"}},
		"what no label of Linode may begin with": {
			[]string{"--cloud=linode", "--cluster-id=prod", "--volume-name-prefix=abcdefghijkl-", "--region=us ord", "--tag=a=b", "--tag=team=" + strings.Repeat("a", 46)},
			[]string{"--credentials-file: required with --cloud linode, or the environment variable LINODE_TOKEN", "--volume-name-prefix", "--region", "--tag"},
		},
		"another scope of the topology key": {with("--topology-key=a.example/zone=zone"), []string{"--topology-key"}},
		"another vendor's driver":           {[]string{"--cloud=local", "--local-pool=/p", "--node-id=a", "--driver-name=dobs.csi.digitalocean.com"}, []string{"--driver-name dobs.csi.digitalocean.com: this is the driver of --cloud digitalocean, and not of --cloud local"}},
		"a vendor's driver without a cloud": {[]string{"--driver-name=dobs.csi.digitalocean.com"}, []string{"--cloud: required"}},
		"a mistake in each": {
			[]string{"--cloud=digitalocean", "--cluster-id=prod", "--region=?", "--api-endpoint=x", "--operation-timeout=1ms", "--tag=a=.", "--max-volumes=0"},
			[]string{"--credentials-file", "--region", "--api-endpoint", "--operation-timeout", "--tag", "--max-volumes"},
		},
	})
}

func TestFlagsWinOverTheVendorsEnvironment(t *testing.T) {
	env := driver.Environment{
		"DIGITALOCEAN_ACCESS_TOKEN= from-env\n", "DIGITALOCEAN_API_URL=https://env.example/",
		"LINODE_TOKEN=from-env", "LINODE_URL=https://env.example/",
	}
	file := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	tests := map[string]struct {
		args            []string
		token, endpoint string
	}{
		"only the environment": {nil, "from-env", "https://env.example/"},
		"flags":                {[]string{"--credentials-file=" + file, "--api-endpoint=http://127.0.0.1:80"}, "from-file", "http://127.0.0.1:80"},
	}
	for name, tc := range tests {
		for _, cloud := range []string{"digitalocean", "linode"} {
			t.Run(name+" of "+cloud, func(t *testing.T) {
				c, err := parse(append([]string{"--cloud=" + cloud, "--cluster-id=prod"}, tc.args...), env, &bytes.Buffer{})
				ok(t, err)
				token, err := c.token()
				if err != nil || token != tc.token || c.apiEndpoint != tc.endpoint || c.operationTimeout != 5*time.Minute {
					t.Errorf("the token is %q, %v, the endpoint %q, want %q and %q", token, err, c.apiEndpoint, tc.token, tc.endpoint)
				}
			})
		}
	}
}

// An error about a file does not repeat what it holds. TestCredentialsThatCannotBeReadAreReported has what follows on a good token.
func TestAFileThatNeverHadATokenIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	f := &tokenFile{path: path}
	if got, err := f.read(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("read of no file = %q, %v, want an error that names it", got, err)
	}
	for _, bad := range []string{"", " \n", "one two", "secret\x00", strings.Repeat("s", 1<<20)} {
		ok(t, os.WriteFile(path, []byte(bad), 0o600))
		if got, err := f.read(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("read of %.20q = %q, %v, want an error that does not repeat it", bad, got, err)
		}
	}
}
