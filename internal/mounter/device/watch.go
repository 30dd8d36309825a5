package device

import (
	"os"

	"golang.org/x/sys/unix"
)

// watch reports that something in dir may have changed. Where that cannot be watched nothing is
// ever reported; callers also read again by themselves. stop ends it and waits for its end.
func watch(dir string) (changes <-chan struct{}, stop func()) {
	nothing := func() {}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nothing
	}
	f := os.NewFile(uintptr(fd), "inotify") // non-blocking, so Close wakes a reader
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ATTRIB); err != nil {
		_ = f.Close()
		return nil, nothing
	}
	out, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case out <- struct{}{}:
			default: // one is waiting to be seen already
			}
		}
	}()
	return out, func() {
		_ = f.Close()
		<-done
	}
}
