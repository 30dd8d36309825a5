package host

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// udev reads a device again when a descriptor for writing is closed, and each stage holds its device for a moment.
func TestADeviceIsHeldForReadingOnly(t *testing.T) {
	dev, err := os.Create(filepath.Join(t.TempDir(), "device"))
	must(t, err)
	defer func() { _ = dev.Close() }()
	x, err := Hold(t.Context(), dev)
	must(t, err)
	defer func() { _ = x.Close() }()
	flags, err := unix.FcntlInt(x.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
		t.Errorf("the flags are %#x, %v, want read-only", flags, err)
	}
}

// A close that waits for a disk must not keep other volumes from running programs. A socket that still has data to send stands for the
// disk: to close it waits for the other end.
func TestACloseThatHangsStopsNoProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the hold")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	from, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	to, err := listener.Accept()
	must(t, err)
	hangs, err := from.(*net.TCPConn).File()
	must(t, err)
	_ = from.Close()
	fd := int(hangs.Fd())
	for err == nil {
		_, err = unix.SendmsgN(fd, make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT)
	}
	must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}))
	closed := make(chan error, 1)
	go func() { closed <- Exclusive{hangs}.Close() }()
	for closing := false; !closing; {
		closing = !syscall.ForkLock.TryLock()
		if !closing {
			syscall.ForkLock.Unlock()
		}
	}
	timeout := time.AfterFunc(20*time.Second, func() { _ = to.Close() })
	if _, err := (Programs{}).Run(t.Context(), Command{Name: "true"}); err != nil {
		t.Error(err)
	}
	if !timeout.Stop() {
		t.Error("a program had to wait for the close")
	}
	_ = to.Close()
	<-closed
}
