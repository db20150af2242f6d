# packages: grpcio
"""C++ with threads, poll and TLS of its own (BoringSSL)."""
import concurrent.futures
import grpc

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/echo/fail":
            def fail(request, context):
                context.abort(grpc.StatusCode.NOT_FOUND, "not there")
            return grpc.unary_unary_rpc_method_handler(fail)
        if details.method == "/echo/stream":
            return grpc.unary_stream_rpc_method_handler(lambda request, context: (request + bytes([n]) for n in range(9)))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])

server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Echo(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    call = channel.unary_unary("/echo/one")
    print([call(f"number {n}".encode()) for n in range(5)], len(call(b"x" * 300_000)))
    print(b"".join(channel.unary_stream("/echo/stream")(b"s")))
    try:
        channel.unary_unary("/echo/fail")(b"")
    except grpc.RpcError as error:
        print(error.code(), error.details())
server.stop(0).wait()
