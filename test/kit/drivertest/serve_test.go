package drivertest_test

import (
	"net"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// A program starts seconds after its test asked for the address, and may be started again.
func TestAFreeAddressStaysFree(t *testing.T) {
	address, before := drivertest.FreeAddress(t), map[string]bool{}
	for range 200 {
		before[drivertest.FreeAddress(t)] = true
	}
	if len(before) != 200 || before[address] {
		t.Fatalf("%d addresses for 200 calls, and the first one again: %t", len(before), before[address])
	}
	for range 2 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		expect.NoError(t, err)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		expect.NoError(t, err)
		if port := conn.LocalAddr().String(); port == address || before[port] {
			t.Errorf("a connection has the reserved port of %s", port)
		}
		_, _ = conn.Close(), l.Close()
	}
}
