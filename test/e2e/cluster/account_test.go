//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// account is the emulated account of `make cluster`, from its owner's side.
type account struct{ url string }

// findAccount takes the account that CLOUDBLOCK_EMULATOR names; the default is the one of `make cluster`.
func findAccount(driver) (store, error) {
	url := os.Getenv("CLOUDBLOCK_EMULATOR")
	if url == "" {
		url = "http://10.250.0.254:28080"
	}
	return account{url + "/_emulator/"}, nil
}

// read gets what the account has under a name.
func read[T any](ctx context.Context, a account, what string) (T, error) {
	var found T
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+what, http.NoBody)
	if err != nil {
		return found, err
	}
	// No proxy of this machine knows the address.
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return found, err
	}
	if answer.StatusCode != http.StatusOK {
		return found, errors.Join(fmt.Errorf("GET %s: %s", req.URL, answer.Status), answer.Body.Close())
	}
	return found, errors.Join(json.NewDecoder(answer.Body).Decode(&found), answer.Body.Close())
}

// disk is a volume or a snapshot of the account.
type disk struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	DropletID int    `json:"droplet_id"`
}

// look finds wrong, beside what must never have happened, a device without an attachment.
func (a account) look(ctx context.Context) (held []thing, wrong []string, err error) {
	volumes, err := read[[]disk](ctx, a, "volumes")
	if err != nil {
		return nil, nil, err
	}
	snapshots, err := read[[]disk](ctx, a, "snapshots")
	if err != nil {
		return nil, nil, err
	}
	attached := map[string]bool{}
	for _, d := range append(volumes, snapshots...) {
		attached[d.Name] = d.DropletID != 0
		held = append(held, thing{d.ID, fmt.Sprintf("in the account: %s %s (droplet %d)", d.Name, d.ID, d.DropletID)})
	}
	const link = "scsi-0DO_Volume_"
	bound, err := loops(func(file string) bool {
		return strings.Contains(file, "/emulator/data/") && strings.Contains(file, link)
	})
	if err != nil {
		return nil, nil, err
	}
	if wrong, err = a.incidents(ctx); err != nil {
		return nil, nil, err
	}
	for loop, file := range bound {
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), " (deleted)"), link)
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
	}](ctx, a, "violations")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, v := range violations {
		found = append(found, "violation: "+v.What+" of "+v.VolumeName)
	}
	contract, err := read[struct {
		Mismatches int `json:"mismatches"`
	}](ctx, a, "contract")
	if contract.Mismatches > 0 {
		found = append(found, fmt.Sprintf("%d exchanges break the official description", contract.Mismatches))
	}
	return found, err
}
