//go:build cluster

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// account is the emulated account of `make cluster`, from its owner's side.
type account struct {
	url string
	// link begins the name of a volume's link and of its file.
	link string
	// kinds are what there can be in it.
	kinds []string
	// described: each exchange is held to an official description, where there is one on this machine.
	described bool
}

// at takes the account that CLOUDBLOCK_EMULATOR names; the default is the one of `make cluster`.
func (a account) at(driver) (store, error) {
	a.url = os.Getenv("CLOUDBLOCK_EMULATOR")
	if a.url == "" {
		a.url = "http://10.250.0.254:28080"
	}
	a.url += "/_emulator/"
	return a, nil
}

// read gets what the account has under a name.
func read[T any](ctx context.Context, a account, what string) (found T, err error) {
	text, err := a.send(ctx, http.MethodGet, what, nil)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	return found, err
}

// send asks the account for something and returns its answer.
func (a account) send(ctx context.Context, method, what string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// No proxy of this machine knows the address.
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, req.URL, answer.Status)
	}
	return text, errors.Join(err, answer.Body.Close())
}

// disk is a volume or a snapshot of the account, in the words of whichever cloud it is in.
type disk struct {
	ID       json.RawMessage `json:"id"`
	Name     string          `json:"name"`
	Label    string          `json:"label"`
	Droplet  int             `json:"droplet_id"`
	Linode   int             `json:"linode"`
	Instance string          `json:"instance"`
	// Tags, or Labels in their place.
	Tags   []string          `json:"tags"`
	Labels map[string]string `json:"labels"`
}

func (d disk) id() string     { return strings.Trim(string(d.ID), `"`) }
func (d disk) name() string   { return cmp.Or(d.Name, d.Label) }
func (d disk) attached() bool { return d.Droplet != 0 || d.Linode != 0 || d.Instance != "" }

// look finds wrong, beside what must never have happened, a device without an attachment.
func (a account) look(ctx context.Context) (held []thing, wrong []string, err error) {
	attached := map[string]bool{}
	for _, kind := range a.kinds {
		disks, err := read[[]disk](ctx, a, kind)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range disks {
			// A link has the one or the other.
			attached[d.name()], attached[d.id()] = d.attached(), d.attached()
			held = append(held, thing{d.id(), fmt.Sprintf("in the account: %s %s (attached: %t)", d.name(), d.id(), d.attached())})
		}
	}
	bound, err := loops(func(file string) bool {
		return strings.Contains(file, "/emulator/data/") && strings.Contains(file, a.link)
	})
	if err != nil {
		return nil, nil, err
	}
	if wrong, err = a.incidents(ctx); err != nil {
		return nil, nil, err
	}
	for loop, file := range bound {
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), " (deleted)"), a.link)
		if !attached[name] {
			wrong = append(wrong, loop+" bound to "+file)
		}
	}
	return held, wrong, nil
}

// incidents names what must never have happened: a disk that was taken away while it was in use, an
// exchange that breaks the official description.
func (a account) incidents(ctx context.Context) ([]string, error) {
	violations, err := read[[]struct {
		What       string `json:"what"`
		VolumeName string `json:"volume_name"`
		Label      string `json:"label"`
		DiskName   string `json:"disk_name"`
	}](ctx, a, "violations")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, v := range violations {
		found = append(found, "violation: "+v.What+" of "+cmp.Or(v.VolumeName, v.Label, v.DiskName))
	}
	if !a.described {
		return found, nil
	}
	contract, err := read[struct {
		Mismatches int `json:"mismatches"`
	}](ctx, a, "contract")
	if contract.Mismatches > 0 {
		found = append(found, fmt.Sprintf("%d exchanges break the official description", contract.Mismatches))
	}
	return found, err
}
