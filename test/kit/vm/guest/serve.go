package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// commandAddress takes scripts, socketAddress leads to unix sockets.
	commandAddress = ":7001"
	socketAddress  = ":7002"
	// metadataIP is the same in all three clouds.
	metadataIP = "169.254.169.254"
	// metadataDir holds the answers of the metadata service: a file for each path.
	metadataDir = "/run/metadata"
)

func serve() error {
	commands := http.NewServeMux()
	commands.HandleFunc("GET /boot", func(w http.ResponseWriter, _ *http.Request) {
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id") // its size is 0, so http.ServeFile sends nothing
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(id)
	})
	commands.HandleFunc("POST /run", runScript)
	sockets, err := net.Listen("tcp", socketAddress)
	if err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- http.ListenAndServe(metadataIP+":80", http.HandlerFunc(serveMetadata)) }()
	go func() { ended <- forward(sockets) }()
	go func() { ended <- http.ListenAndServe(commandAddress, commands) }()
	return <-ended
}

// runScript runs the script in the body with bash and returns its output and its exit code.
func runScript(w http.ResponseWriter, r *http.Request) {
	cmd := exec.CommandContext(r.Context(), "/bin/bash", "-s")
	cmd.Stdin = r.Body
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		code = -1
		out = append(out, err.Error()...)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"output": string(out), "code": code})
}

// serveMetadata answers every method alike; what the node program sends is checked by the tests of its own
// package. Only the header that keeps a redirected browser out of Yandex Cloud's service is required.
func serveMetadata(w http.ResponseWriter, r *http.Request) {
	path := filepath.Clean("/" + r.URL.Path)
	if strings.HasPrefix(path, "/computeMetadata/") && r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "no Metadata-Flavor", http.StatusForbidden)
		return
	}
	data, err := os.ReadFile(metadataDir + path)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if json.Valid(data) && (data[0] == '{' || data[0] == '[') {
		w.Header().Set("Content-Type", "application/json")
	}
	_, _ = w.Write(data)
}

// forward connects each caller to the unix socket whose path is its first line.
func forward(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			in := bufio.NewReader(conn)
			path, err := in.ReadString('\n')
			if err != nil {
				return
			}
			socket, err := net.Dial("unix", strings.TrimSpace(path))
			if err != nil {
				return
			}
			defer func() { _ = socket.Close() }()
			ended := make(chan struct{}, 2)
			go func() { _, _ = io.Copy(socket, in); ended <- struct{}{} }()
			go func() { _, _ = io.Copy(conn, socket); ended <- struct{}{} }()
			<-ended
		}()
	}
}
