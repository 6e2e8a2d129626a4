package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	"github.com/brokerd/brokerd/sdk/transport"
)

// transportClasses are the classes of a transport's errors in both worlds.
func transportClasses() [6]wireClass {
	return [...]wireClass{
		{pluginv1.Class_CLASS_RETRY, transport.ErrRetry},
		{pluginv1.Class_CLASS_REFUSED, transport.ErrRefused},
		{pluginv1.Class_CLASS_DENIED, transport.ErrDenied},
		{pluginv1.Class_CLASS_OTHER, transport.ErrOther},
		{pluginv1.Class_CLASS_CLOSED, transport.ErrClosed},
		{pluginv1.Class_CLASS_INVALID, transport.ErrInvalid},
	}
}

// splitTransportError takes an error apart for the wire. One without a class may be tried
// again.
func splitTransportError(err error) (pluginv1.Class, string) {
	message := err.Error()
	var e *transport.Error
	if errors.As(err, &e) && e.Error() == message {
		message = e.Message
	}
	message = wireText(message)
	for _, c := range transportClasses() {
		if errors.Is(err, c.sentinel) {
			return c.wire, message
		}
	}
	return pluginv1.Class_CLASS_RETRY, message
}

// joinTransportError puts an error together again. A class that is not known may be tried
// again.
func joinTransportError(class int32, message string) error {
	for _, c := range transportClasses() {
		if c.wire == pluginv1.Class(class) {
			return &transport.Error{Class: c.sentinel, Message: message}
		}
	}
	return &transport.Error{Class: transport.ErrRetry, Message: message}
}

func transportErrorToProto(err error) *pluginv1.Error {
	if err == nil {
		return nil
	}
	class, message := splitTransportError(err)
	return &pluginv1.Error{Class: class, Message: message}
}

func transportErrorFromProto(e *pluginv1.Error) error {
	if e == nil || e.GetClass() == pluginv1.Class_CLASS_UNSPECIFIED {
		return nil
	}
	return joinTransportError(int32(e.GetClass()), e.GetMessage())
}

// transportCallError gives a failed call to a transport's plugin its class.
func transportCallError(ctx context.Context, act string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", act, transport.ErrRetry, context.Cause(ctx))
	}
	if status.Code(err) == codes.Unimplemented {
		return transport.Errorf(transport.ErrInvalid, "%s: it does not serve transports", act)
	}
	return fmt.Errorf("%s: %w: %w", act, transport.ErrRetry, err)
}
