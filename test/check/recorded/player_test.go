package recorded_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

var must = expect.NoError

// volume is what a player needs of a volume in an answer.
type volume struct {
	ID          int
	Label       string
	Status      string
	Region      string
	Size        int
	Tags        []string
	Encryption  string
	LinodeID    int    `json:"linode_id"`
	LinodeLabel string `json:"linode_label"`
}

// volumesIn returns the volumes of an answer: those of its list, or the one that it is.
func volumesIn(t *testing.T, body json.RawMessage) (all []volume) {
	t.Helper()
	var list struct{ Data []json.RawMessage }
	must(t, json.Unmarshal(body, &list))
	for _, element := range append(list.Data, body) {
		var kind struct {
			Path string `json:"filesystem_path"`
		}
		var v volume
		if err := json.Unmarshal(element, &kind); err != nil || kind.Path == "" {
			continue
		}
		must(t, json.Unmarshal(element, &v))
		all = append(all, v)
	}
	return all
}

// plain are the recorded regions that did not encrypt by default when they were recorded; the others did.
var plain = []string{"ap-west", "us-sea", "pl-labkrk-2"}

// regions are those of a recording.
func regions(t *testing.T, exchanges []recorded.Exchange) map[string]emulator.Region {
	t.Helper()
	all := map[string]emulator.Region{emulator.DefaultRegion: {}}
	for _, e := range exchanges {
		for _, v := range volumesIn(t, e.Answer) {
			all[v.Region] = emulator.Region{}
		}
	}
	for id := range all {
		has := []string{"Linodes", emulator.BlockStorage, emulator.MetadataService}
		if !slices.Contains(plain, id) {
			has = append(has, emulator.BlockStorageEncryption)
		}
		all[id] = emulator.Region{Capabilities: has}
	}
	return all
}

// player sends the requests of a recording to an emulated account.
type player struct {
	t       *testing.T
	account *emulator.Cloud
	url     string
	// ids are the account's ids of recorded volumes.
	ids map[int]int
}

// newPlayer starts an account with what the recording presumes: its Linodes, and the volumes that it shows and does not make.
func newPlayer(t *testing.T, exchanges []recorded.Exchange, serve func(*testing.T, *emulator.Cloud) string) *player {
	t.Helper()
	account := emulator.Start(t, emulator.Options{
		// Only Finish ends an operation.
		Regions: regions(t, exchanges), Durations: emulator.Each(clock.Fixed(time.Hour)), Limits: emulator.RealLimits(),
	})
	p := &player{t: t, account: account, url: serve(t, account), ids: map[int]int{}}
	if len(exchanges) > 0 && exchanges[0].Header.Get("X-Oauth-Scopes") != "*" {
		account.SetRules(func(r *emulator.Rules) { r.Scopes = strings.Fields(exchanges[0].Header.Get("X-Oauth-Scopes")) })
	}
	made := map[int]bool{}
	for _, e := range exchanges {
		all := volumesIn(t, e.Answer)
		for _, v := range all {
			p.addLinode(v)
		}
		for _, v := range all {
			if e.Method == http.MethodPost {
				made[v.ID] = true
			} else if !made[v.ID] {
				made[v.ID] = true
				p.addVolume(v)
			}
		}
	}
	return p
}

// direct serves an account as it is.
func direct(_ *testing.T, account *emulator.Cloud) string { return account.URL }

// addLinode adds the Linode that a volume names.
func (p *player) addLinode(v volume) {
	if v.LinodeID != 0 && !slices.Contains(p.account.Linodes(), v.LinodeID) {
		p.account.AddLinode(emulator.Linode{ID: v.LinodeID, Label: v.LinodeLabel, Region: v.Region})
	}
}

// addVolume adds a volume that the recording presumes.
func (p *player) addVolume(v volume) {
	p.t.Helper()
	id, err := p.account.AddVolume(emulator.Volume{
		ID: v.ID, Label: v.Label, Region: v.Region, SizeGiB: v.Size, Tags: v.Tags, Encrypted: v.Encryption == "enabled",
	})
	must(p.t, err)
	p.account.Attached(id, v.LinodeID)
}

var (
	volumePath = regexp.MustCompile(`/volumes/(\d+)`)
	linodePath = regexp.MustCompile(`/linode/instances/(\d+)`)
)

// path is an exchange's path with the account's id of the volume.
func (p *player) path(e recorded.Exchange) string {
	return volumePath.ReplaceAllStringFunc(e.Path, func(part string) string {
		id, _ := strconv.Atoi(strings.TrimPrefix(part, "/volumes/"))
		if mapped, is := p.ids[id]; is {
			id = mapped
		}
		return "/volumes/" + strconv.Itoa(id)
	})
}

// recordedID is the recorded id of one of the account's volumes.
func (p *player) recordedID(id int) int {
	for was, is := range p.ids {
		if is == id {
			return was
		}
	}
	return id
}

// play sends a request of the recording, and keeps the id of the volume that it makes.
func (p *player) play(e recorded.Exchange) expect.Answer {
	p.t.Helper()
	shown := volumesIn(p.t, e.Answer)
	if match := linodePath.FindStringSubmatch(e.Path); match != nil {
		id, _ := strconv.Atoi(match[1])
		p.addLinode(volume{LinodeID: id, Region: emulator.DefaultRegion})
	}
	changing := func(v volume) bool { return v.Status == "creating" || v.Status == "resizing" }
	if e.Method == http.MethodGet && !slices.ContainsFunc(shown, changing) {
		p.account.Finish()
	}
	got := p.send(e.Method, p.path(e), e.Filter, e.Body)
	if len(shown) == 1 && e.Method == http.MethodPost && got.Status == http.StatusOK {
		var made struct{ ID int }
		if err := json.Unmarshal([]byte(got.Body), &made); err == nil && p.recordedID(made.ID) == made.ID {
			p.ids[shown[0].ID] = made.ID
		}
	}
	return got
}

// send sends a request with the account's token.
func (p *player) send(method, path string, filter *string, body []byte) expect.Answer {
	p.t.Helper()
	return p.sendAs(p.account.Token, method, path, filter, body)
}

func (p *player) sendAs(token, method, path string, filter *string, body []byte) expect.Answer {
	p.t.Helper()
	if string(body) == "null" {
		body = nil
	}
	header := []string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}
	if filter != nil {
		header = append(header, "X-Filter", *filter)
	}
	return expect.Fetch(p.t, method, p.url+path, string(body), header...)
}
