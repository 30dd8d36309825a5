package accounts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// controller adds to a controller's flags where the API is, and the credentials in a file of dir.
func controller(a Account, url, dir, file string, credentials []byte) ([]string, error) {
	path := filepath.Join(dir, file)
	return append(a.Flags(), "--cluster-id=test", "--api-endpoint="+url, "--credentials-file="+path),
		os.WriteFile(path, credentials, 0o600)
}

// machine adds this machine to an account, with the links to its volumes in a folder of dir.
func machine(a Account, dir string) ([]string, error) {
	devices := filepath.Join(dir, "by-id")
	if err := os.MkdirAll(devices, 0o755); err != nil {
		return nil, err
	}
	return []string{"--metadata-endpoint=" + a.Metadata(a.AddMachine(devices)), "--device-dir=" + devices}, nil
}

// text is an id that is a number; 0 is none.
func text(id int) string {
	if id == 0 {
		return ""
	}
	return strconv.Itoa(id)
}

func texts(ids []int) []string {
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		all = append(all, text(id))
	}
	return all
}

// number is the id that a text is; 0 is none.
func number(id string) int {
	n, _ := strconv.Atoi(id)
	return n
}

// deleteByWeb deletes what is at a path of an API whose answer is a status.
func deleteByWeb(a Account, path string) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, a.URL()+path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+a.Token())
	answer, err := a.Memory().Web.RoundTrip(r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("delete %s: %s", path, answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}
