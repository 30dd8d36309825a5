package account

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Control serves the owner's side of an account to people and to other programs, below /_emulator/. It
// needs no token: whoever reaches a loopback address of this machine may do it.
type Control struct{ mux *http.ServeMux }

// NewControl returns the owner's side, without anything in it yet.
func NewControl(mux *http.ServeMux) Control {
	mux.Handle("/_emulator/", http.NotFoundHandler())
	return Control{mux}
}

// Do answers requests such as "POST reset" with what f returns.
func (c Control) Do(request string, f func(body []byte, r *http.Request) (any, error)) {
	method, path, _ := strings.Cut(request, " ")
	c.mux.HandleFunc(method+" /_emulator/"+path, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		var result any
		if err == nil {
			result, err = f(body, r)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, result)
	})
}

// Show answers a GET with what get returns.
func Show[T any](c Control, path string, get func() T) {
	c.mux.HandleFunc("GET /_emulator/"+path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, get()) })
}

// Machines are an account's machines M, with ids of type K, as their owner manages them.
type Machines[K, M any] struct {
	ParseID  func(text string) (K, error)
	List     func() []K
	Add      func(M) K
	Remove   func(id K, lag time.Duration)
	Metadata func(id K) string
}

// Serve lets the owner add and remove machines; kind is their name in the path, such as "droplets".
func (m Machines[K, M]) Serve(c Control, kind string) {
	Show(c, kind, m.List)
	c.Do("POST "+kind, func(body []byte, _ *http.Request) (any, error) {
		var machine M
		if len(body) > 0 {
			if err := ReadJSON(body, &machine); err != nil {
				return nil, err
			}
		}
		id := m.Add(machine)
		return map[string]any{"id": id, "metadata": m.Metadata(id)}, nil
	})
	c.Do("DELETE "+kind+"/{machine}", func(_ []byte, r *http.Request) (any, error) {
		id, err := m.ParseID(r.PathValue("machine"))
		if err != nil {
			return nil, err
		}
		var lag time.Duration
		if text := r.URL.Query().Get("lag"); text != "" {
			if lag, err = time.ParseDuration(text); err != nil {
				return nil, err
			}
		}
		m.Remove(id, lag)
		return m.List(), nil
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(v) // a client that went away needs no answer
}

// ReadJSON reads one value and refuses unknown fields: a misspelt fault would never strike.
func ReadJSON(body []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}
