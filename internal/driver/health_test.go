package driver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

const (
	// probeLimit is timeoutSeconds of the manifests' probes.
	probeLimit = 5 * time.Second
	// failureThreshold is how many consecutive probes have to fail before the kubelet acts.
	failureThreshold = 3
	// idleClient is the environment variable that makes a test process a client. It has the address, the count and the number.
	idleClient = "CLOUDBLOCK_TEST_IDLE_CLIENT"
)

// TestIdleConnectionsDoNotStopTheProbes: 20,000 connections that send nothing, a byte or one request neither take much memory nor
// lock out the kubelet's probes. A process can have 20,000 descriptors here, so the clients are separate processes.
func TestIdleConnectionsDoNotStopTheProbes(t *testing.T) {
	r := start(t, handlers{}, nil)
	drivertest.Ready(t, r.conn)
	const clients, each = 4, 5000
	opened := make(chan error, clients)
	for i := range clients {
		go func() { opened <- openIdle(t, r.http, each, i) }()
	}
	kubelet := &http.Client{Timeout: probeLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	for probes, failed, left := 0, 0, clients; left > 0; probes++ {
		select {
		case err := <-opened:
			must(t, err)
			left--
		default:
		}
		if err := probe(kubelet, "http://"+r.http+"/readyz"); err == nil {
			failed = 0
		} else if failed++; failed == failureThreshold {
			t.Fatalf("%d probes in a row failed after %d, the last with: %v", failed, probes, err)
		}
		checkSmall(t)
	}
	for range 10 {
		if err := probe(kubelet, "http://"+r.http+"/healthz"); err != nil {
			t.Errorf("probe with all connections open: %v", err)
		}
	}
	checkSmall(t)
}

// TestClientsOfTheMetricsKeepNobodyOut: Prometheus gets each of its pages while other clients send requests without pause.
func TestClientsOfTheMetricsKeepNobodyOut(t *testing.T) {
	r := start(t, handlers{}, nil)
	drivertest.Ready(t, r.conn)
	client := &http.Client{Timeout: probeLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 16 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = probe(client, "http://"+r.http+"/metrics")
				}
			}
		})
	}
	for range 50 {
		if err := probe(client, "http://"+r.http+"/metrics"); err != nil {
			t.Errorf("a scrape beside 16 others: %v", err)
		}
	}
	close(stop)
	others.Wait()
}

// checkSmall fails the test if this process uses more than a part of the manifests' 256 MiB.
func checkSmall(t *testing.T) {
	t.Helper()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if n, limit := runtime.NumGoroutine(), 2000; n > limit {
		t.Fatalf("%d goroutines, want at most %d", n, limit)
	}
	if limit := uint64(128 << 20); mem.Sys > limit {
		t.Fatalf("%d bytes of memory, want at most %d", mem.Sys, limit)
	}
}

// probe is one HTTP probe of the kubelet.
func probe(client *http.Client, url string) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	return err
}

// openIdle starts a client and returns when all of its connections are open. They stay open until the test ends.
func openIdle(t *testing.T, address string, count, number int) error {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleClient$", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", idleClient, address, count, number))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "open") {
		err = fmt.Errorf("client %d: %s", number, line)
	}
	return err
}

// TestIdleClient is the process of openIdle. A third of its connections send nothing, a third one byte, a third a request.
func TestIdleClient(t *testing.T) {
	spec := strings.Fields(os.Getenv(idleClient))
	if len(spec) != 3 {
		t.Skip("only as the client of TestIdleConnectionsDoNotStopTheProbes")
	}
	server, err := net.ResolveTCPAddr("tcp", spec[0])
	must(t, err)
	count, _ := strconv.Atoi(spec[1])
	number, _ := strconv.Atoi(spec[2])
	to := &unix.SockaddrInet4{Port: server.Port, Addr: [4]byte(server.IP.To4())}
	for i := range count {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(10 + number)}}))
		must(t, unix.Connect(fd, to))
		request := []string{"", "G", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"}[i%3]
		_, _ = unix.Write(fd, []byte(request)) // the server may have closed it
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
