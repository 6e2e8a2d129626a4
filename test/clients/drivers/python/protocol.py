"""What all of the drivers share: their arguments, their lines, the records, and what admin expects.

The protocol is told in doc.go of test/clients.
"""

import asyncio
import json
import os
import sys
import threading
import time

# Consumers' settings that every driver uses, so that a killed member is noticed soon.
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
REBALANCE_MS = 10_000
# How long poll waits for records at most.
POLL_MS = 200
# How long a driver waits for what must come.
PATIENCE_S = 60

# What each command takes: a default, or REQUIRED. The types are those of the defaults.
REQUIRED = object()
COMMANDS = {
    "version": {},
    "produce": {
        "bootstrap": REQUIRED,
        "topic": REQUIRED,
        "codec": "none",
        "count": 0,
        "from": 0,
        "idempotent": False,
        "timestamp": 0,
    },
    "consume": {"bootstrap": REQUIRED, "topic": REQUIRED, "count": 0},
    "member": {"bootstrap": REQUIRED, "topic": REQUIRED, "group": REQUIRED, "instance": None, "protocol": "eager"},
    "admin": {"bootstrap": REQUIRED, "topic": REQUIRED},
}


class Failure(Exception):
    """Why a driver gives up."""


def arguments(command, words):
    """The values of a command's keys; a key that it does not have is an error."""
    if command not in COMMANDS:
        raise Failure(f"no command {command!r}, only {', '.join(COMMANDS)}")
    values = dict(COMMANDS[command])
    for word in words:
        key, equals, text = word.partition("=")
        if key not in values or not equals:
            raise Failure(f"{command} does not take {word!r}, only {', '.join(values) or 'nothing'}")
        default = COMMANDS[command][key]
        if isinstance(default, bool):
            if text not in ("true", "false"):
                raise Failure(f"{key} is true or false, not {text!r}")
            values[key] = text == "true"
        elif isinstance(default, int):
            values[key] = int(text)
        else:
            values[key] = text
    missing = [key for key, value in values.items() if value is REQUIRED]
    if missing:
        raise Failure(f"{command} needs {', '.join(missing)}")
    return values


_printing = threading.Lock()


def emit(event, **fields):
    """Prints one event. May be called by any thread."""
    with _printing:
        print(json.dumps({"event": event, **fields}), flush=True)


def log(*words):
    print(*words, file=sys.stderr, flush=True)


def emit_record(partition, offset, key, value, headers, timestamp):
    """Prints a record that was consumed; headers are pairs of a name and bytes."""
    emit(
        "record",
        partition=partition,
        offset=offset,
        key=text(key),
        value=text(value),
        headers=[[name, text(content)] for name, content in headers or []],
        timestamp=timestamp,
    )


def emit_assigned(partitions):
    emit("assigned", partitions=sorted(partitions))


def text(content):
    return None if content is None else content.decode()


class Sent:
    """Record number i, as every driver sends it."""

    def __init__(self, i, first_timestamp):
        self.key = b"k-%d" % i
        self.value = b"v-%d-" % i + bytes([ord("a") + i % 26]) * 100
        self.headers = [("n", b"%d" % i), ("empty", b"")]
        self.timestamp = first_timestamp + i
        self.partition = 0 if i % 3 == 0 else None


def sent(args):
    """All records that produce was asked for."""
    return [Sent(i, args["timestamp"]) for i in range(args["from"], args["from"] + args["count"])]


class Patience:
    """Fails when nothing comes for a long time."""

    def __init__(self, what):
        self.what = what
        self.renew()

    def renew(self):
        self.until = time.monotonic() + PATIENCE_S

    def check(self):
        if time.monotonic() > self.until:
            raise Failure(f"nothing for {PATIENCE_S} s: {self.what}")


def stdin_ended():
    """An event that is set when stdin ends: the sign to leave."""
    ended = threading.Event()

    def read():
        # Not sys.stdin: its lock would be held when the interpreter shuts down.
        while os.read(0, 4096):
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


# The group and the topic's settings that admin works with.
PARTITIONS, GROWN = 3, 5
RETENTION, RETENTION_ALTERED = "3600000", "7200000"
RECORDS, CONSUMED, DELETED_BEFORE = 10, 4, 3


def admin_group(args):
    return args["topic"] + "-group"


def called(call):
    """Tells of a call that did as it should."""
    emit("admin", call=call)


def expect(what, got, want):
    if got != want:
        raise Failure(f"{what}: got {got!r}, want {want!r}")


def eventually(what, get, want):
    """Waits until get gives what is wanted: what a broker did may take a moment to be seen."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        got = get()
        if got == want:
            return
        if time.monotonic() > deadline:
            expect(what, got, want)
        time.sleep(0.05)


async def eventually_async(what, get, want):
    """The same for coroutines."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        got = await get()
        if got == want:
            return
        if time.monotonic() > deadline:
            expect(what, got, want)
        await asyncio.sleep(0.05)
