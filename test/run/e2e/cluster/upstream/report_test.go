package upstream

import (
	"regexp"
	"testing"
	"time"
)

const sample = `[{"SpecialSuiteFailureReasons":["Detected Programmatic Focus - setting exit status to 197"],"SpecReports":[
 {"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"},
 {"ContainerHierarchyTexts":["External Storage","Dynamic PV (ext4) volumes"],"LeafNodeType":"It","LeafNodeText":"should store data","State":"passed","RunTime":2000000000},
 {"ContainerHierarchyTexts":["External Storage"],"LeafNodeType":"It","LeafNodeText":"left out by a filter","State":"skipped"},
 {"ContainerHierarchyTexts":["External Storage"],"LeafNodeType":"It","LeafNodeText":"no ext3","State":"skipped","Failure":{"Message":"Driver x doesn't support ext3 -- skipping"}},
 {"ContainerHierarchyTexts":["External Storage"],"LeafNodeType":"It","LeafNodeText":"odd","State":"skipped","Failure":{"Message":"the moon is full"}},
 {"ContainerHierarchyTexts":["External Storage"],"LeafNodeType":"It","LeafNodeText":"broken","State":"failed","Failure":{"Message":"pod did not start"}},
 {"ContainerHierarchyTexts":["External Storage"],"LeafNodeType":"It","LeafNodeText":"stuck","State":"timedout","Failure":{"Message":"too long"}},
 {"ContainerHierarchyTexts":["External Storage"],"LeafNodeType":"It","LeafNodeText":"cut off","State":"interrupted"},
 {"LeafNodeType":"SynchronizedAfterSuite","State":"failed","Failure":{"Message":"namespace stays"}}]}]`

func TestJudge(t *testing.T) {
	specs, err := Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	r := Judge(specs, excuses)
	if len(r.Passed) != 1 || r.Passed[0] != (Spec{Name: "External Storage Dynamic PV (ext4) volumes should store data", State: "passed", Time: 2 * time.Second}) {
		t.Errorf("passed = %+v", r.Passed)
	}
	if len(r.Failed) != 4 {
		t.Errorf("failed = %+v, want the broken, the stuck, the interrupted one and the tear-down", r.Failed)
	}
	if len(r.Unexplained) != 1 || r.Unexplained[0].Why != "the moon is full" {
		t.Errorf("unexplained = %+v", r.Unexplained)
	}
	if len(r.Skipped) != 1 || r.NotSelected != 1 || r.OK() {
		t.Errorf("skipped = %+v, not selected = %d, ok = %v", r.Skipped, r.NotSelected, r.OK())
	}
	if n := Count(r.Passed, core); n != 1 {
		t.Errorf("%d of the passed are core specs, want 1", n)
	}
}

func TestExcuseByName(t *testing.T) {
	const snapshots = `Driver "x" does not support snapshots - skipping`
	const spec = "[Testpattern: Dynamic Snapshot (delete policy)] snapshottable should y"
	for name, c := range map[string]struct {
		cloud, spec, why string
		explained        bool
	}{
		"a pattern without snapshots":           {"digitalocean", "[Testpattern: Dynamic PV (filesystem volmode)] multiVolume [Slow] should y", snapshots, true},
		"snapshots where there are some":        {"digitalocean", spec, snapshots, false},
		"snapshots where there are none":        {"linode", spec, snapshots, true},
		"data of snapshots where there is none": {"linode", spec, `Driver "x" does not support populating data from snapshot - skipping`, true},
		"groups of snapshots":                   {"linode", spec, `Driver "x" does not support group snapshots - skipping`, true},
		"growth online where it is seen later":  {"linode", spec, `Driver "x" does not support online volume expansion - skipping`, true},
		"growth online where it is seen":        {"digitalocean", spec, `Driver "x" does not support online volume expansion - skipping`, false},
		"growth offline":                        {"linode", spec, `Driver "x" does not support offline volume expansion - skipping`, false},
	} {
		if got := excuse(Spec{Name: c.spec, State: skipped, Why: c.why}, of(c.cloud, excuses)) != ""; got != c.explained {
			t.Errorf("%s: a skip of %q is explained = %v, want %v", name, c.spec, got, c.explained)
		}
	}
}

func TestJudgeNothing(t *testing.T) {
	if r := Judge(nil, excuses); r.OK() {
		t.Error("a run in which nothing passed is taken for a success")
	}
	if _, err := Parse([]byte("no json")); err == nil {
		t.Error("a broken report is taken for one")
	}
}

func TestFilter(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		spec    string
		left    bool
	}{
		"slow specs are left out":           {Options{GrowsMountedExt4: true}, "x [Slow] y", true},
		"the wide run takes them":           {Options{GrowsMountedExt4: true, Wide: true}, "x [Slow] y", false},
		"disruptive ones never run":         {Options{Wide: true}, "x [Disruptive] [Slow]", true},
		"growing ext4 online without right": {Options{}, "[Testpattern: Dynamic PV (default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited while pod is using it", true},
		"growing ext4 online with it":       {Options{GrowsMountedExt4: true}, "[Testpattern: Dynamic PV (default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited while pod is using it", false},
		"growing xfs online":                {Options{Wide: true}, "[Testpattern: Dynamic PV (xfs)] [Slow] volume-expand should resize volume when PVC is edited while pod is using it", false},
		"offline growth of ext4 on local":   {Options{Cloud: "local"}, "[Testpattern: Dynamic PV (default fs)(allowExpansion)] volume-expand Verify if offline PVC expansion works", true},
		"offline growth of ext4 on a cloud": {Options{Cloud: "digitalocean"}, "[Testpattern: Dynamic PV (default fs)(allowExpansion)] volume-expand Verify if offline PVC expansion works", true},
		"ext4 restored larger":              {Options{Cloud: "yandex"}, "[Testpattern: Dynamic PV (ext4)] provisioning should provision correct filesystem size when restoring snapshot to larger size pvc", true},
		"xfs restored larger":               {Options{Cloud: "yandex"}, "[Testpattern: Dynamic PV (xfs)] provisioning should provision correct filesystem size when restoring snapshot to larger size pvc", false},
		"snapshots made by hand on local":   {Options{Cloud: "local", GrowsMountedExt4: true}, "[Testpattern: Pre-provisioned Snapshot (retain policy)] snapshottable", true},
		"snapshots made by hand on a cloud": {Options{Cloud: "digitalocean", GrowsMountedExt4: true}, "[Testpattern: Pre-provisioned Snapshot (retain policy)] snapshottable", false},
		"growing raw block online":          {Options{}, "[Testpattern: Dynamic PV (block volmode)(allowExpansion)] volume-expand should resize volume when PVC is edited while pod is using it", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := regexp.MustCompile(pattern(c.options.Filter())).MatchString(c.spec); got != c.left {
				t.Errorf("left out = %v, want %v", got, c.left)
			}
		})
	}
}
