package plugin

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// dial serves g in memory and connects to it.
func dial(t *testing.T, g *grpc.Server, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:x", append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// plainPlugin is a plugin as another language's generated code makes it: it
// knows the message Frame, and the drawing beside it.
type plainPlugin struct {
	pluginv1.UnimplementedPluginServer
	storagev1.UnimplementedStorageServer
	reply func(unit []byte) []byte
}

func (plainPlugin) Info(context.Context, *pluginv1.InfoRequest) (*pluginv1.InfoResponse, error) {
	return &pluginv1.InfoResponse{Kind: KindStorage, Name: "plain"}, nil
}

func (plainPlugin) Configure(context.Context, *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	return &pluginv1.ConfigureResponse{DirectoryId: make([]byte, 16)}, nil
}

func (p plainPlugin) Data(stream grpc.BidiStreamingServer[storagev1.Frame, storagev1.Frame]) error {
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		err = splitUnits(f.GetValue(), func(unit []byte) error {
			return stream.Send(&storagev1.Frame{Value: p.reply(unit)})
		})
		if err != nil {
			return err
		}
	}
}

// plainStore connects to a plain plugin.
func plainStore(t *testing.T, reply func(unit []byte) []byte) *Store {
	t.Helper()
	g := grpc.NewServer() // gRPC's own codec
	p := plainPlugin{reply: reply}
	pluginv1.RegisterPluginServer(g, p)
	storagev1.RegisterStorageServer(g, p)
	s, _, err := NewClient(dial(t, g, DialOptions()...), 0).Store(t.Context(), storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s
}

func TestOurClientWithAPlainPlugin(t *testing.T) {
	s := plainStore(t, func(unit []byte) []byte {
		out := make([]byte, 46) // an append's answer, byte by byte
		out[3], out[4], out[5] = 42, 1, 129
		copy(out[12:28], unit[12:28])
		out[36], out[37], out[45] = 8, 2, 3
		return out
	})
	done := make(chan storage.AppendResult, 1)
	s.Append(t.Context(), storage.AppendRequest{Handle: 1, Data: [][]byte{make([]byte, 10000)}}, func(r storage.AppendResult, err error) {
		if err != nil {
			t.Error(err)
		}
		done <- r
	})
	if got := <-done; got != (storage.AppendResult{LEO: 8, Survives: storage.SurvivesMachine, Durable: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestNonsenseFromAPluginEndsTheLane(t *testing.T) {
	s := plainStore(t, func([]byte) []byte { return []byte("nonsense, not a unit at all, however long") })
	if _, err := s.Read(t.Context(), storage.ReadRequest{Handle: 1}); !errors.Is(err, storage.ErrGone) {
		t.Errorf("%v, want gone", err)
	}
	<-s.Lost()
}

// plainStream is a client of generated code alone, at our server.
func plainStream(t *testing.T) grpc.BidiStreamingClient[storagev1.Frame, storagev1.Frame] {
	t.Helper()
	g := grpc.NewServer(ServerOptions()...)
	NewStorageServer(memstore.NewProvider(memstore.Options{}), nil, nil).Register(g)
	conn := dial(t, g)
	if _, err := pluginv1.NewPluginClient(conn).Configure(t.Context(), &pluginv1.ConfigureRequest{
		Settings: memstore.Settings("disk"), Identity: &pluginv1.Identity{ClusterId: "c", NodeId: 1}, ProposedDirectoryId: make([]byte, 16),
	}); err != nil {
		t.Fatal(err)
	}
	stream, err := storagev1.NewStorageClient(conn).Data(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestAPlainClientAtOurServer(t *testing.T) {
	stream := plainStream(t)
	unit := make([]byte, 49) // a read of a handle that does not exist
	unit[3], unit[4], unit[5], unit[19], unit[27] = 45, 1, 2, 77, 99
	unknownKind, unknownVersion, short := append([]byte(nil), unit...), append([]byte(nil), unit...), make([]byte, 28)
	unknownKind[5], unknownVersion[4] = 9, 2
	copy(short, unit[:28])
	short[3] = 24
	for name, c := range map[string]struct {
		unit  []byte
		class pluginv1.Class
	}{
		"unknown handle":  {unit, pluginv1.Class_CLASS_GONE},
		"unknown kind":    {unknownKind, pluginv1.Class_CLASS_INVALID},
		"unknown version": {unknownVersion, pluginv1.Class_CLASS_INVALID},
		"short":           {short, pluginv1.Class_CLASS_INVALID},
	} {
		if err := stream.Send(&storagev1.Frame{Value: c.unit}); err != nil {
			t.Fatal(err)
		}
		f, err := stream.Recv()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v := f.GetValue()
		if len(v) < 29 || v[19] != 77 || v[5] != c.unit[5]|128 || pluginv1.Class(v[28]) != c.class && name != "unknown handle" || v[28] == 0 {
			t.Errorf("%s: answer %x", name, v)
		}
	}
	// An orderly end is answered by one.
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestNonsenseFromAClientEndsTheStream(t *testing.T) {
	stream := plainStream(t)
	if err := stream.Send(&storagev1.Frame{Value: []byte("nonsense, not a unit at all, however long")}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, want InvalidArgument", err)
	}
}
