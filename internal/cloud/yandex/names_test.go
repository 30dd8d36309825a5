package yandex

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
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
	key := one.idempotencyKey(keyDisk, "pvc-1", "")
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(key) {
		t.Errorf("the key %s is no UUID of version 5", key)
	}
	same := &Cloud{folder: "b1g", owner: ownerOf("one"), zone: "ru-central1-b", prefix: "x-"}
	if got := same.idempotencyKey(keyDisk, "pvc-1", ""); got != key {
		t.Errorf("the key of another controller of the cluster is %s, want %s", got, key)
	}
	keys := map[string]string{key: "the first"}
	for name, other := range map[string]string{
		"another name":      one.idempotencyKey(keyDisk, "pvc-2", ""),
		"another kind":      one.idempotencyKey(keySnapshot, "pvc-1", ""),
		"after a failure":   one.idempotencyKey(keyDisk, "pvc-1", "/op"),
		"another cluster":   (&Cloud{folder: "b1g", owner: ownerOf("two")}).idempotencyKey(keyDisk, "pvc-1", ""),
		"another folder":    (&Cloud{folder: "b1h", owner: ownerOf("one")}).idempotencyKey(keyDisk, "pvc-1", ""),
		"parts that run on": (&Cloud{folder: "b1go", owner: ownerOf("ne")}).idempotencyKey(keyDisk, "pvc-1", ""),
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
