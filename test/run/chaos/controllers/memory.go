package controllers

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// Memory runs controllers in this process; only memory connects them with their callers.
type Memory struct {
	world *world.World
	// plant wraps the backend, to make it wrong on purpose; nil: as it is.
	plant func(cloud.Cloud) cloud.Cloud
	// died is called after the end of a life, unless all end.
	died func()

	ended sync.WaitGroup
	mu    sync.Mutex
	lives map[int]*life
}

// life is one life of a controller.
type life struct {
	end   context.CancelFunc
	conn  *grpc.ClientConn
	sweep func(context.Context) error
}

// NewMemory makes it without controllers in this world. Plant wraps each backend, to make it wrong on purpose; nil: as it is. Died is
// called after the end of a life, unless all end.
func NewMemory(w *world.World, plant func(cloud.Cloud) cloud.Cloud, died func()) *Memory {
	return &Memory{world: w, plant: plant, died: died, lives: map[int]*life{}}
}

// Start begins a life of a controller with a backend of its own. The error is what kept the backend from opening.
func (f *Memory) Start(number int) error {
	alive, end := context.WithCancel(context.Background())
	l := &life{end: end}
	bare, tidy, err := f.world.Open(alive, world.Program{Number: number, Kill: func() { f.end(number, l) }})
	if err != nil {
		end()
		return fmt.Errorf("start controller %d: %w", number, err)
	}
	l.sweep = world.SweepOf(bare)
	if f.plant != nil {
		planted := f.plant(bare)
		l.sweep, bare = world.SweepOf(planted, bare), planted
	}
	// The real pauses, each of the same length in every repeat of a seed.
	stack := middleware.Stack(bare, wait.Backoff{Rand: func() float64 { return .5 }})
	service := controller.New(stack, f.world.Names())
	listener := bufconn.Listen(world.ConnBuffer)
	l.conn, err = grpc.NewClient("passthrough:///controller", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		end()
		return fmt.Errorf("start controller %d: %w", number, err)
	}
	f.ended.Go(func() {
		defer tidy()
		// Killed programs do not drain: calls that are left when life ends are cut off.
		_ = driver.Serve(alive, driver.Config{Names: f.world.Names(), Features: service.Features(), Listener: listener, Grace: 1},
			func(r grpc.ServiceRegistrar) { csi.RegisterControllerServer(r, service) })
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lives[number] = l
	return nil
}

// end kills this life, not one that came after it.
func (f *Memory) end(number int, l *life) {
	f.mu.Lock()
	if f.lives[number] == l {
		delete(f.lives, number)
	}
	f.mu.Unlock()
	if f.died != nil {
		defer f.died()
	}
	_ = l.conn.Close() // first, so that nothing of what the end makes of calls is answered
	l.end()            // from here on nothing of it reaches the cloud
}

// Kill ends the life of a controller at once, if it has one.
func (f *Memory) Kill(number int) {
	f.mu.Lock()
	l := f.lives[number]
	f.mu.Unlock()
	if l != nil {
		f.end(number, l)
	}
}

// Client returns what calls the controller, nil while it is down.
func (f *Memory) Client(number int) csi.ControllerClient {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lives[number]; l != nil {
		return csi.NewControllerClient(l.conn)
	}
	return nil
}

// Sweep lets a controller remove what broken-off calls have left; one that is down has no part in it. The error is the backend's.
func (f *Memory) Sweep(ctx context.Context, number int) error {
	f.mu.Lock()
	l := f.lives[number]
	f.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.sweep(ctx)
}

// Close ends all controllers and waits for what is left of them.
func (f *Memory) Close() {
	f.mu.Lock()
	lives := f.lives
	f.lives, f.died = map[int]*life{}, nil
	f.mu.Unlock()
	for number, l := range lives {
		f.end(number, l)
	}
	f.ended.Wait()
}
