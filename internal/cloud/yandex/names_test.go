package yandex

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
)

// The id of a disk is a legal device name, 20 characters at most; anything else gets the name that the vendor's
// driver would make.
func TestDeviceNames(t *testing.T) {
	for id, want := range map[cloud.VolumeID]string{
		"fhm4aq4hvq5g00000000":  "fhm4aq4hvq5g00000000",
		"4hm4aq4hvq5g00000000":  profile.YandexVendorDevice("4hm4aq4hvq5g00000000"),
		"fhm4aq4hvq5g0000000x1": profile.YandexVendorDevice("fhm4aq4hvq5g0000000x1"),
	} {
		if got := (&Cloud{}).deviceName(id); got != want || !deviceWord.MatchString(got) {
			t.Errorf("deviceName(%s) = %s, want %s", id, got, want)
		}
	}
	for id, want := range map[cloud.VolumeID]string{"epd3ngm5h9o0abc953qj": "csi-25174384", "fhm4aq4hvq5g00000000": "csi-1328705469"} {
		if got := (&Cloud{vendorNames: true}).deviceName(id); got != want {
			t.Errorf("deviceName(%s) in the vendor's place = %s, want %s", id, got, want)
		}
	}
}

// C1: a key follows from the folder, the cluster and the request's name and from nothing else; it is a UUID.
func TestIdempotencyKeys(t *testing.T) {
	one := &Cloud{folder: "b1g", owner: ownerOf("one")}
	key := one.idempotencyKey(keyDisk, "pvc-1")
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(key) {
		t.Errorf("the key %s is no UUID of version 5", key)
	}
	same := &Cloud{folder: "b1g", owner: ownerOf("one"), zone: "ru-central1-b", prefix: "x-"}
	if got := same.idempotencyKey(keyDisk, "pvc-1"); got != key {
		t.Errorf("the key of another controller of the cluster is %s, want %s", got, key)
	}
	keys := map[string]string{key: "the first"}
	for name, other := range map[string]string{
		"another name":      one.idempotencyKey(keyDisk, "pvc-2"),
		"another kind":      one.idempotencyKey(keySnapshot, "pvc-1"),
		"another cluster":   (&Cloud{folder: "b1g", owner: ownerOf("two")}).idempotencyKey(keyDisk, "pvc-1"),
		"another folder":    (&Cloud{folder: "b1h", owner: ownerOf("one")}).idempotencyKey(keyDisk, "pvc-1"),
		"parts that run on": (&Cloud{folder: "b1go", owner: ownerOf("ne")}).idempotencyKey(keyDisk, "pvc-1"),
	} {
		if earlier, taken := keys[other]; taken {
			t.Errorf("%s has the key of %s", name, earlier)
		}
		keys[other] = name
	}
}

func TestFlagsThatTheCloudWouldRefuse(t *testing.T) {
	for prefix, ok := range map[string]bool{"": true, "prod-": true, "a": true, "prod_": true, "1-": false, "-": false, "Prod-": false, strings.Repeat("a", 33): false} {
		if err := CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("CheckPrefix(%q) = %v", prefix, err)
		}
	}
	for zone, ok := range map[string]bool{"": true, "ru-central1-a": true, "kz1-a": true, "RU": false, "../a": false, "a b": false} {
		if err := CheckZone(zone); (err == nil) != ok {
			t.Errorf("CheckZone(%q) = %v", zone, err)
		}
	}
	for id, ok := range map[string]bool{"": true, "b1gvmob95yysaplct532": true, "b1g/../x": false, "B1G": false} {
		if err := CheckFolder(id); (err == nil) != ok {
			t.Errorf("CheckFolder(%q) = %v", id, err)
		}
	}
}

func TestNamesAreLegalAndStayApart(t *testing.T) {
	legal := regexp.MustCompile(`^[a-z]([-_a-z0-9]{0,61}[a-z0-9])?$`)
	seen := map[string]string{}
	for _, request := range []string{
		"pvc-6c4a4ee5-47e4-4e9f-8c1c-0d0a4f4f5a01", "PVC-6C4A4EE5-47E4-4E9F-8C1C-0D0A4F4F5A01", "1", "a", "-a", "a-", "a_b", "a--b",
		strings.Repeat("n", 63), strings.Repeat("n", 64), strings.Repeat("n", 65), "../a", "a b", "том",
	} {
		got := names.Map("", request)
		if !legal.MatchString(got) {
			t.Errorf("the name of %q is %q, which the cloud would refuse", request, got)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q have the same name %q", request, other, got)
		}
		seen[got] = request
	}
}
