#!/usr/bin/python3
"""A consumer of trace points: what the protocol says and no more, with messages that protoc makes of the .proto files.

consumer.py SOCKET [--version N] [--handshake HEX] [--slow SECONDS] [--silent]

Writes a line of JSON for each packet: {"type", "dropped", "message"}; before them {"handshake": N} for each connection,
and after them {"over": true}.
"""

import argparse, importlib, json, os, socket, struct, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.join(os.path.dirname(os.path.dirname(HERE)), "crates/base/trace_wire/proto")

# Message types by number: package and message.
TYPES = {
    "CONTAINER_START": "container.Start",
    "SENTRY_CLONE": "sentry.CloneInfo",
    "SENTRY_EXEC": "sentry.ExecveInfo",
    "SENTRY_EXIT_NOTIFY_PARENT": "sentry.ExitNotifyParentInfo",
    "SENTRY_TASK_EXIT": "sentry.TaskExit",
    "SENTRY_MMAP": "sentry.MmapInfo",
    "SYSCALL_RAW": "syscall.Syscall",
    "SYSCALL_PRLIMIT64": "syscall.Prlimit",
    "SYSCALL_TIMERFD_CREATE": "syscall.TimerfdCreate",
    "SYSCALL_TIMERFD_SETTIME": "syscall.TimerfdSetTime",
    "SYSCALL_TIMERFD_GETTIME": "syscall.TimerfdGetTime",
    "SYSCALL_INOTIFY_INIT": "syscall.InotifyInit",
    "SYSCALL_INOTIFY_ADD_WATCH": "syscall.InotifyAddWatch",
    "SYSCALL_INOTIFY_RM_WATCH": "syscall.InotifyRmWatch",
    "SYSCALL_SOCKETPAIR": "syscall.SocketPair",
}


def messages():
    """The generated modules by name of their package."""
    with tempfile.TemporaryDirectory() as dir:
        names = [name for name in os.listdir(PROTO) if name.endswith(".proto")]
        subprocess.run(["protoc", f"--proto_path={PROTO}", f"--python_out={dir}"] + names, check=True, cwd=PROTO)
        sys.path.insert(0, dir)
        return {name[: -len(".proto")]: importlib.import_module(name.replace(".proto", "_pb2")) for name in names}


def message_class(modules, kind):
    name = modules["common"].MessageType.Name(kind)[len("MESSAGE_") :]
    where = TYPES.get(name) or "syscall." + name[len("SYSCALL_") :].capitalize()
    package, message = where.split(".")
    return name, getattr(modules[package], message)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("socket")
    args.add_argument("--version", type=int, default=1)
    args.add_argument("--handshake", help="send these bytes instead of a handshake")
    args.add_argument("--slow", type=float, default=0, help="sleep this long before the first packet is read")
    args.add_argument("--silent", action="store_true", help="send no handshake")
    args = args.parse_args()
    modules = messages()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(args.socket)
    listener.listen(8)
    print(json.dumps({"listening": args.socket}), flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(args, modules, connection), daemon=True).start()


def serve(args, modules, connection):
    from google.protobuf.json_format import MessageToDict

    hello = modules["common"].Handshake()
    hello.ParseFromString(connection.recv(1024))
    print(json.dumps({"handshake": hello.version}), flush=True)
    if args.silent:
        time.sleep(600)
    if args.handshake is not None:
        connection.send(bytes.fromhex(args.handshake))
    else:
        connection.send(modules["common"].Handshake(version=args.version).SerializeToString())
    time.sleep(args.slow)
    while packet := connection.recv(4 << 20):
        size, kind, dropped = struct.unpack_from("<HHI", packet)
        name, cls = message_class(modules, kind)
        message = cls()
        message.ParseFromString(packet[size:])
        told = MessageToDict(message, preserving_proto_field_name=True)
        print(json.dumps({"type": name, "dropped": dropped, "message": told}), flush=True)
    print(json.dumps({"over": True}), flush=True)
    connection.close()


if __name__ == "__main__":
    main()
