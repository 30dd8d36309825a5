package main

import (
	"bytes"
	"cmp"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func TestLimitsAreReadFromTheCommandLine(t *testing.T) {
	minute, hour := budget.Window{Calls: 250, Per: time.Minute, Fixed: true}, budget.Window{Calls: 5000, Per: time.Hour, FromHeaders: true, Fixed: true}
	tests := map[string]struct {
		args []string
		want []budget.Window
		bad  bool
	}{
		"none: the cloud's documented ones":     {nil, nil, false},
		"two":                                   {[]string{"--api-limits=250/1m,5000/1h"}, []budget.Window{minute, hour}, false},
		"the longest is reported, in any order": {[]string{"--api-limits=5000/1h,250/60s"}, []budget.Window{minute, hour}, false},
		"one":                                   {[]string{"--api-limits=5000/1h"}, []budget.Window{hour}, false},
		"nothing":                               {[]string{"--api-limits="}, nil, true},
		"a number alone":                        {[]string{"--api-limits=250"}, nil, true},
		"no calls at all":                       {[]string{"--api-limits=0/1m"}, nil, true},
		"less than a second":                    {[]string{"--api-limits=9/1ms"}, nil, true},
		"one of several that is wrong":          {[]string{"--api-limits=250/1m,x/1h"}, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := parse(append([]string{"--cloud=digitalocean", "--cluster-id=prod", "--credentials-file=/token"}, tc.args...), noEnvironment, &bytes.Buffer{})
			if errors.Is(err, driver.ErrCommandLine) != tc.bad || !reflect.DeepEqual(c.apiLimits, tc.want) {
				t.Errorf("parse(%q) = %v, %v, want %v", tc.args, c.apiLimits, err, tc.want)
			}
		})
	}
	if _, err := parse([]string{"--cloud=local", "--local-pool=/p", "--node-id=a", "--api-limits=1/1m"}, noEnvironment, &bytes.Buffer{}); !errors.Is(err, driver.ErrCommandLine) {
		t.Errorf("parse(--cloud=local --api-limits) = %v, want an error of the command line", err)
	}
}

func TestYandexMaxOperations(t *testing.T) {
	for args, want := range map[string]int{
		"--cloud=yandex": 15, "--cloud=yandex --yandex-max-operations=60": 60,
		"--cloud=yandex --yandex-max-operations=0": 0, "--cloud=linode --yandex-max-operations=60": 0,
		"--cloud=local --local-pool=/p --node-id=a --yandex-max-operations=60": 0,
	} {
		token := driver.Environment{"YANDEX_AUTH_KEYS=atoken", "YANDEX_FOLDER_ID=folder", "LINODE_TOKEN=atoken", "DIGITALOCEAN_ACCESS_TOKEN=atoken"}
		cfg, err := parse(append(strings.Fields(args), "--cluster-id=prod"), token, &bytes.Buffer{})
		if (err == nil) != (want > 0) || err == nil && cfg.yandexOperations != want {
			t.Errorf("parse(%s) = %d, %v, want %d", args, cfg.yandexOperations, err, want)
		}
	}
}

func TestFlagsOfLinode(t *testing.T) {
	for args, want := range map[string]config{
		"--cloud=linode":                                                   {linodePersist: "auto"},
		"--cloud=linode --linode-persist=true":                             {linodePersist: "true"},
		"--cloud=linode --linode-persist=false":                            {linodePersist: "false"},
		"--cloud=linode --linode-kubernetes-tags":                          {linodePersist: "auto", linodeKubernetesTags: true},
		"--cloud=linode --linode-snapshots=clones":                         {linodePersist: "auto", linodeSnapshots: "clones"},
		"--cloud=linode --linode-snapshots=yes":                            {},
		"--cloud=yandex --linode-snapshots=clones":                         {},
		"--cloud=linode --linode-persist=never":                            {},
		"--cloud=digitalocean --linode-persist=true":                       {},
		"--cloud=yandex --linode-kubernetes-tags=true":                     {},
		"--cloud=local --local-pool=/p --node-id=a --linode-persist=false": {},
	} {
		token := driver.Environment{"LINODE_TOKEN=t", "DIGITALOCEAN_ACCESS_TOKEN=t"}
		got, err := parse(append(strings.Fields(args), "--cluster-id=prod"), token, &bytes.Buffer{})
		want.linodeSnapshots = cmp.Or(want.linodeSnapshots, "off")
		if (err == nil) != (want.linodePersist != "") || err == nil && got.linodeSnapshots != want.linodeSnapshots || got.linodePersist != want.linodePersist || got.linodeKubernetesTags != want.linodeKubernetesTags {
			t.Errorf("parse(%s) = %q, %v, %v", args, got.linodePersist, got.linodeKubernetesTags, err)
		}
	}
}
