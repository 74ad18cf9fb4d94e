# needs: /usr/bin/python3 /usr/lib/python3/dist-packages/grpc
# gRPC: calls of all four shapes, over TCP of both families and over a Unix socket, with errors and deadlines.
import os, subprocess, sys

try:
    import grpc
except ImportError:
    # Debian's package belongs to its own Python.
    if sys.executable == "/usr/bin/python3":
        raise
    sys.exit(subprocess.run(["/usr/bin/python3", os.path.abspath(__file__)]).returncode)
import threading, time  # noqa: E402
from concurrent import futures  # noqa: E402


def fails(data, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")


def slow(data, context):
    time.sleep(3)  # longer than the deadline of its call
    return data


def count(pieces, context):
    return str(sum(len(piece) for piece in pieces)).encode()


def back(pieces, context):
    for piece in pieces:
        yield piece[::-1]


HANDLERS = {
    "Echo": grpc.unary_unary_rpc_method_handler(lambda data, context: data),
    "Fails": grpc.unary_unary_rpc_method_handler(fails),
    "Slow": grpc.unary_unary_rpc_method_handler(slow),
    "Up": grpc.unary_stream_rpc_method_handler(lambda data, context: (b"%d" % n for n in range(int(data)))),
    "Count": grpc.stream_unary_rpc_method_handler(count),
    "Back": grpc.stream_stream_rpc_method_handler(back),
}


def code(call):
    try:
        return call()
    except grpc.RpcError as error:
        return error.code().name


server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", HANDLERS),))
ports = [server.add_insecure_port(address) for address in ("127.0.0.1:0", "[::1]:0")]
path = os.path.abspath("socket")
server.add_insecure_port("unix:" + path)
server.start()
for target in (f"127.0.0.1:{ports[0]}", f"[::1]:{ports[1]}", "unix:" + path):
    with grpc.insecure_channel(target) as channel:
        echo = channel.unary_unary("/test.Test/Echo")
        results = []
        threads = [
            threading.Thread(target=lambda n=n: results.extend(echo(b"%d" % (n * 50 + i)) for i in range(50)))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sorted(map(int, results)) == list(range(200)))
        print(len(echo(b"x" * 3000000)), code(lambda: channel.unary_unary("/test.Test/Fails")(b"")))
        print(code(lambda: channel.unary_unary("/test.Test/Slow")(b"", timeout=0.2)))
        print(code(lambda: channel.unary_unary("/test.Test/None")(b"")))
        print(sum(int(n) for n in channel.unary_stream("/test.Test/Up")(b"500")))
        print(channel.stream_unary("/test.Test/Count")(iter([b"y" * 65536] * 100)))
        print(list(channel.stream_stream("/test.Test/Back")(iter([b"abc", b"def"]))))
server.stop(0).wait()
with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
    print(code(lambda: channel.unary_unary("/test.Test/Echo")(b"", timeout=5)))
