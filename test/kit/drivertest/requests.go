package drivertest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// Methods returns the methods of a service of the specification, such as csi.v1.Node, by name.
func Methods(t testing.TB, service protoreflect.FullName) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(service)
	expect.NoError(t, err)
	all := map[string]protoreflect.MethodDescriptor{}
	list := found.(protoreflect.ServiceDescriptor).Methods()
	for i := range list.Len() {
		all[string(list.Get(i).Name())] = list.Get(i)
	}
	return all
}

// Message returns an empty message.
func Message(t testing.TB, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	expect.NoError(t, err)
	return kind.New().Interface()
}

// Call sends a request of any method.
func Call(t testing.TB, conn *grpc.ClientConn, method protoreflect.MethodDescriptor, req proto.Message) error {
	t.Helper()
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	return conn.Invoke(Waiting(t), path, req, Message(t, method.Output()))
}

// Fill sets every field of a message to something, strings and map entries to the text. Fields that the specification marks
// as secret get the secret.
func Fill(m protoreflect.Message, text, secret string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field, value := fields.Get(i), text
		if marked, ok := proto.GetExtension(field.Options(), csi.E_CsiSecret).(bool); ok && marked {
			value = secret
		}
		switch {
		case field.IsMap():
			m.Mutable(field).Map().Set(protoreflect.ValueOfString(value).MapKey(), protoreflect.ValueOfString(value))
		case field.IsList() && field.Message() != nil:
			Fill(m.Mutable(field).List().AppendMutable().Message(), text, secret)
		case field.IsList():
			m.Mutable(field).List().Append(protoreflect.ValueOfString(value))
		case field.Message() != nil:
			Fill(m.Mutable(field).Message(), text, secret)
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(value))
		case field.Kind() == protoreflect.Int64Kind:
			m.Set(field, protoreflect.ValueOfInt64(3<<30))
		case field.Kind() == protoreflect.Int32Kind:
			m.Set(field, protoreflect.ValueOfInt32(1))
		case field.Kind() == protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
		case field.Kind() == protoreflect.EnumKind:
			m.Set(field, protoreflect.ValueOfEnum(1))
		}
	}
}

// FuzzCalls calls the methods of a service with requests of fuzzed bytes, beginning with ones that have each of the texts in
// every field. No call may panic, which the log would have, or end with a code that says nothing. check looks at each end.
func FuzzCalls(f *testing.F, service protoreflect.FullName, conn *grpc.ClientConn, texts []string, check func(t *testing.T, call string)) {
	f.Helper()
	all := Methods(f, service)
	names := slices.Sorted(maps.Keys(all))
	for i, name := range names {
		for _, text := range append(texts, "") {
			req := Message(f, all[name].Input())
			if text != "" {
				Fill(req.ProtoReflect(), text, "secret")
			}
			raw, err := proto.Marshal(req)
			expect.NoError(f, err)
			f.Add(uint(i), raw)
		}
	}
	f.Fuzz(func(t *testing.T, number uint, raw []byte) {
		name := names[number%uint(len(names))]
		req := Message(t, all[name].Input())
		if proto.Unmarshal(raw, req) != nil {
			t.Skip("is no message")
		}
		err := Call(t, conn, all[name], req)
		switch code := status.Code(err); code {
		case codes.Internal, codes.Unknown, codes.DeadlineExceeded:
			t.Errorf("%s(%v) = %v", name, req, err)
		}
		check(t, fmt.Sprintf("%s(%v) = %v", name, req, err))
	})
}

// Tree describes every file below a folder: its mode, its size, and where a link leads.
func Tree(t testing.TB, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		leads, _ := os.Readlink(path)
		_, err = fmt.Fprintf(&text, "%s %s %d %s %s\n", path, info.Mode(), info.Size(), info.ModTime(), leads)
		return err
	})
	expect.NoError(t, err)
	return text.String()
}

// FilesWith returns the files below a folder that hold a text, except those below the folders that are left out.
func FilesWith(t testing.TB, dir, text string, leftOut ...string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(leftOut, path):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), text) {
			found = append(found, path)
		}
		return err
	})
	expect.NoError(t, err)
	return found
}
