package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// attaching are the clouds that attach volumes to machines.
func attaching(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(clouds(t), func(cloud string) bool { return cloud == "local" })
}

// withSnapshots are the clouds whose file has snapshot classes.
func withSnapshots(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(clouds(t), func(cloud string) bool { return cloudFile(t, cloud)["snapshotClasses"] == nil })
}

func cloudFile(t *testing.T, cloud string) values {
	t.Helper()
	return parseCloud(t, read(t, filepath.Join(chartDir, "clouds", cloud+".yaml")))
}

func parseCloud(t *testing.T, text string) values {
	t.Helper()
	var file values
	if err := yaml.UnmarshalStrict([]byte(text), &file); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return file
}

// checkCloud returns what clouds/schema.json has against the file of a cloud.
func checkCloud(t *testing.T, file values) error {
	t.Helper()
	return util.ValidateAgainstSingleSchema(file, []byte(read(t, filepath.Join(chartDir, "clouds", "schema.json"))))
}

// TestOneListOfClouds: each overlay has a file of the chart and is in its schema and in the comments of values.yaml, and
// nothing else is. The driver of a vendor is in the comments and in the expressions of monitoring.
func TestOneListOfClouds(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(deploy, "overlays"))
	must(t, err)
	var overlays []string
	for _, entry := range entries {
		overlays = append(overlays, entry.Name())
	}
	all := clouds(t)
	if !slices.Equal(all, overlays) {
		t.Errorf("%s/clouds has files for %q, want one for each folder of deploy/overlays: %q", chartDir, all, overlays)
	}
	enum, _ := at(schema(t), "properties", "cloud", "enum").([]any)
	if got := fmt.Sprintf("%q", enum); got != fmt.Sprintf("%q", all) {
		t.Errorf("values.schema.json: `cloud` is one of %s, want the files of clouds in order: %q", got, all)
	}
	ofCloud, rest, _ := strings.Cut(read(t, filepath.Join(chartDir, "values.yaml")), "\ncloud: \"\"\n")
	ofVendor, _, found := strings.Cut(rest, "\nvendor: \"\"\n")
	if !found {
		t.Fatal("values.yaml does not begin with `cloud` and `vendor`")
	}
	for _, cloud := range all {
		if !strings.Contains(ofCloud, cloud) {
			t.Errorf("values.yaml: the comment of `cloud` does not name %s", cloud)
		}
		driver, _ := at(cloudFile(t, cloud), "vendor", "driver").(string)
		if !strings.Contains(ofVendor, driver) {
			t.Errorf("values.yaml: the comment of `vendor` does not name %s", driver)
		}
		if !strings.Contains(read(t, filepath.Join(chartDir, "monitoring", "rules.yaml")), strings.ReplaceAll(driver, ".", "[.]")) {
			t.Errorf("monitoring/rules.yaml: no expression has the driver_name %s", driver)
		}
	}
}

// TestCloudFiles: each file of a cloud is as clouds/schema.json says, and has the cloud's names.
func TestCloudFiles(t *testing.T) {
	for _, cloud := range clouds(t) {
		file := cloudFile(t, cloud)
		if err := checkCloud(t, file); err != nil {
			t.Errorf("clouds/%s.yaml: %v", cloud, err)
		}
		if want := cloud + ".csi.cloudblock.io"; file["driver"] != want {
			t.Errorf("clouds/%s.yaml: driver is %v, want %s", cloud, file["driver"], want)
		}
		if name := at(file, "secret", "name"); name != nil && name != cloud {
			t.Errorf("clouds/%s.yaml: secret.name is %v, want the cloud's name", cloud, name)
		}
	}
}

// fifth is the file of a cloud that has no more than a cloud needs: no other driver, no snapshots, no flags of its own.
const fifth = `
driver: fifth.csi.cloudblock.io
secret: {name: fifth, key: token}
credentialsFile: /credentials/token
firstClaim: 1Gi
storageClasses:
- {name: cloudblock-fifth}
`

// TestWrongCloudFiles: a mistake in the file of a cloud is answered with the key that it is in.
func TestWrongCloudFiles(t *testing.T) {
	tests := map[string]struct{ was, is, want string }{
		"a misspelt key":           {"firstClaim:", "firstclaim:", "additional properties 'firstclaim' not allowed"},
		"no class":                 {"\n- {name: cloudblock-fifth}", " []", "at '/storageClasses': minItems"},
		"a secret without its key": {", key: token", "", "at '/secret': missing property 'key'"},
		"another kind of driver":   {"fifth.csi.cloudblock.io", "fifth", "at '/driver'"},
		"a file elsewhere":         {"/credentials/token", "/etc/token", "at '/credentialsFile'"},
		"an amount that is none":   {"1Gi", "1GB", "at '/firstClaim'"},
		"a class without a name":   {"{name: cloudblock-fifth}", "{fsType: ext4}", "at '/storageClasses/0': missing property 'name'"},
		"a misspelt key of a class": {
			"{name: cloudblock-fifth}", "{name: cloudblock-fifth, fstype: ext4}", "at '/storageClasses/0': additional properties 'fstype' not allowed",
		},
		"a misspelt key of sidecars": {"firstClaim", "sidecars: {resizertimeout: 2m}\nfirstClaim", "at '/sidecars': additional properties 'resizertimeout' not allowed"},
		"a number for a duration":    {"firstClaim", "sidecars: {resizerTimeout: 2}\nfirstClaim", "at '/sidecars/resizerTimeout'"},
		"an argument without dashes": {"firstClaim", "sidecars: {provisionerArgs: [v=5]}\nfirstClaim", "at '/sidecars/provisionerArgs/0'"},
		"a setting without a value":  {"firstClaim", "snapshotSetting: {name: A}\nfirstClaim", "at '/snapshotSetting': missing property 'value'"},
		"no snapshot class":          {"firstClaim", "snapshotClasses: []\nfirstClaim", "at '/snapshotClasses': minItems"},
		"a vendor without a driver":  {"firstClaim", "vendor: {secret: {name: a, key: b}, storageClasses: [{name: a}]}\nfirstClaim", "at '/vendor': missing property 'driver'"},
	}
	for name, tc := range tests {
		text := strings.Replace(fifth, tc.was, tc.is, 1)
		if err := checkCloud(t, parseCloud(t, text)); text == fifth || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: the schema answers %v, want an error with %q to\n%s", name, err, tc.want, text)
		}
	}
}

// TestAFifthCloud: a cloud with the smallest file that the schema allows renders, once it is in values.schema.json.
func TestAFifthCloud(t *testing.T) {
	file := parseCloud(t, fifth)
	must(t, checkCloud(t, file))
	for key := range file {
		smaller := maps.Clone(file)
		delete(smaller, key)
		if checkCloud(t, smaller) == nil {
			t.Errorf("the file is not the smallest: the schema allows it without %s", key)
		}
	}
	ch := chartWith(t, "fifth", fifth)
	for _, apis := range [][]string{nil, {snapshotAPI}} {
		in := cluster{namespace: "storage", version: newVersion, apis: apis}
		files, err := in.filesOf(ch, values{"cloud": "fifth"})
		must(t, err)
		checkFifth(t, files)
	}
	for want, set := range map[string]values{
		"vendor: fifth has no other driver to take over from, and this is \"linodebs.csi.linode.com\"": {"vendor": "linodebs.csi.linode.com"},
		"snapshots.enabled: fifth has no snapshots":                                                    {"snapshots": values{"enabled": true}},
	} {
		set["cloud"] = "fifth"
		if _, err := clusterOf("fifth").filesOf(ch, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the chart answers %v, want an error with %q", err, want)
		}
	}
}

// checkFifth: the objects are there and are what the API has, and the notes say how to go on.
func checkFifth(t *testing.T, files map[string]string) {
	t.Helper()
	o := parse(t, documentsOf(files))
	for key, object := range o {
		text, err := yaml.Marshal(object)
		must(t, err)
		if _, _, err := strict.Decode(text, nil, nil); err != nil || strings.Contains(string(text), "<no value>") {
			t.Errorf("%s: %v in\n%s", key, err, text)
		}
	}
	for _, key := range []string{"CSIDriver/fifth.csi.cloudblock.io", "StorageClass/cloudblock-fifth", "DaemonSet/cloudblock-node"} {
		if o[key] == nil {
			t.Errorf("there is no %s", key)
		}
	}
	containers, _ := at(o["Deployment/cloudblock-controller"], "spec", "template", "spec", "containers").([]any)
	if len(containers) != 5 {
		t.Errorf("the controller has %d containers, want the program and 4 sidecars, without csi-snapshotter", len(containers))
	}
	for _, c := range containers {
		for _, arg := range c.(values)["args"].([]any) {
			if strings.HasSuffix(arg.(string), "=") {
				t.Errorf("container %v has the argument %s", c.(values)["name"], arg)
			}
		}
	}
	notes := files["cloudblock-csi/templates/NOTES.txt"]
	for _, part := range []string{
		"create secret generic fifth \\\n    --from-file=token=FILE", "storageClassName: \"cloudblock-fifth\"", "storage: 1Gi\n", "Snapshots are off: this cloud has none.",
	} {
		if !strings.Contains(notes, part) {
			t.Errorf("the notes lack %q:\n%s", part, notes)
		}
	}
}

// chartWith loads a copy of the chart with one more cloud.
func chartWith(t *testing.T, cloud, file string) chart.Charter {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cloudblock-csi")
	must(t, os.CopyFS(dir, os.DirFS(chartDir)))
	before := read(t, filepath.Join(dir, "values.schema.json"))
	after := strings.Replace(before, `"cloud": {"enum": [`, `"cloud": {"enum": ["`+cloud+`", `, 1)
	if after == before {
		t.Fatal("values.schema.json has no list of clouds")
	}
	for name, text := range map[string]string{"values.schema.json": after, "clouds/" + cloud + ".yaml": file} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ch, err := loader.Load(dir)
	must(t, err)
	return ch
}
