// Package frame carries the messages of a link over a stream of bytes: a TCP connection,
// a TLS connection, any net.Conn. Who has a connected stream makes links of it, whether
// that is a transport that dialled it or a program that was given its descriptor.
//
// It owns: the layout of frames and of the two hellos, how they are written and read, how
// a link ends, and how contexts end calls. It never dials, listens, resolves, proves who
// a peer is, or logs, has no goroutine but while a Room waits, and needs the standard library alone.
//
// # A link from its beginning to its end
//
// Who has dialled sends a hello (Greet), and the other end (Hear) agrees with a hello of its
// own (Agree) or says why not (Refuse). Who has dialled agrees with that (Confirm) or says
// why not (Decline), so that there is no link which either end has refused. Then each end
// makes a Link of its connection, and frames of messages go both ways. Everything up to here
// is bounded by the deadline that the caller has set on the connection, and by HelloBytesMax:
// that is all that is ever held of a peer which has not been heard yet. Below TLS, Below
// bounds it.
//
// A link ends with its connection. An end that closes it says so if it can (an end
// frame, with the reason where something was wrong), for the sake of who reads the logs: the
// end of the stream says the same. An end whose connection fails when it sends shuts it in
// both directions, and still receives what has arrived.
//
// # What is under way
//
// Credit is the stream's own flow control. A Link reads nothing ahead but into one
// buffer of fixed size (readBytes): the body of a message goes from the connection into
// the memory that Room has given, in the goroutine that calls Receive. So nothing of what
// nobody receives is in the memory of the process, each direction waits for itself alone,
// and what is under way is what the kernels of both ends hold. Who makes the connection
// bounds that to transport.LinkBytesMax, by the size of its buffers. Frames that grant
// credit would be worse: they would lie behind the messages of the other direction, so
// that an end which receives nothing could not send either.
//
// Send writes from the memory of its caller, with one writev where the connection is a
// socket. Below TLS, Below joins the records of one message into few system calls.
//
// # What is checked
//
// Every frame's header carries a CRC32C of itself, so that a length that was
// damaged is not believed. Over a connection that protects nothing (Options.Sum) each
// message carries one of its body also: TCP's checksum is weak, and of what goes from
// broker to broker only records have one of their own. TLS checks more than that.
// A frame that fails ends the link.
//
// # Silence
//
// A link on which nothing is sent stays as it is, and costs nothing: there are no pings.
// Whether the peer's host is there is asked by the kernel, where who makes the
// connection switches that on.
//
// What a stranger may send is tried by FuzzHello and FuzzReceive, and what each end holds of
// it by TestHeld.
package frame
