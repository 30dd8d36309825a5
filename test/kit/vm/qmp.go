package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// qmp is a connection to the control socket of a QEMU
// (https://www.qemu.org/docs/master/interop/qmp-spec.html).
type qmp struct {
	conn    net.Conn
	calls   sync.Mutex // one command at a time
	answers chan message

	mu      sync.Mutex
	deleted map[string]chan struct{} // closed by DEVICE_DELETED of the device with this id
}

// message is an answer or an event.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Device string `json:"device"`
	} `json:"data"`
}

// object is the arguments of a command.
type object = map[string]any

// openQMP connects to the socket at path, which QEMU makes soon after its start.
func openQMP(ctx context.Context, path string) (*qmp, error) {
	q := &qmp{answers: make(chan message), deleted: map[string]chan struct{}{}}
	err := poll(ctx, func() (err error) {
		q.conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reach the control socket of QEMU: %w", err)
	}
	go q.read()
	if err := q.execute(ctx, "qmp_capabilities", nil); err != nil {
		return nil, errors.Join(err, q.conn.Close())
	}
	return q, nil
}

func (q *qmp) read() {
	defer close(q.answers)
	for messages := json.NewDecoder(q.conn); ; {
		var m message
		if err := messages.Decode(&m); err != nil {
			return
		}
		switch {
		case m.Event == "DEVICE_DELETED" && m.Data.Device != "":
			q.mu.Lock()
			if waiting, ok := q.deleted[m.Data.Device]; ok {
				close(waiting)
				delete(q.deleted, m.Data.Device)
			}
			q.mu.Unlock()
		case m.Event == "" && (m.Return != nil || m.Error != nil): // neither an event nor the greeting
			q.answers <- m
		}
	}
}

func (q *qmp) execute(ctx context.Context, command string, arguments object) error {
	q.calls.Lock()
	defer q.calls.Unlock()
	call := object{"execute": command}
	if arguments != nil {
		call["arguments"] = arguments
	}
	if err := json.NewEncoder(q.conn).Encode(call); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	select {
	case m, open := <-q.answers:
		switch {
		case !open:
			return fmt.Errorf("%s: QEMU has closed its control socket", command)
		case m.Error != nil:
			return fmt.Errorf("%s: %s: %s", command, m.Error.Class, m.Error.Desc)
		}
		return nil
	case <-ctx.Done():
		_ = q.conn.Close() // the answer would be taken for that of the next command
		return fmt.Errorf("%s: %w", command, ctx.Err())
	}
}

// remove takes a device from the guest and waits until it has gone.
func (q *qmp) remove(ctx context.Context, device string) error {
	gone := make(chan struct{})
	q.mu.Lock()
	q.deleted[device] = gone
	q.mu.Unlock()
	if err := q.execute(ctx, "device_del", object{"id": device}); err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the guest has not released %s: %w", device, ctx.Err())
	}
}

// poll tries until it succeeds or ctx ends, and returns the last error then.
func poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		}
	}
}
