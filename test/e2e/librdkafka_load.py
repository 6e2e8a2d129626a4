"""Sends numbered records with librdkafka, idempotent, acks=all, until its standard input is closed; then flushes.

Prints one line for each event: "P n" before record n is queued, "A n offset" when it is acknowledged, "E text" for an
error that is not retriable, and at the end "R n", the requests that were
retried and the connections that were made: with each new one, all that was on the broken one is sent again.
"""
import json
import sys
import threading
import time

from confluent_kafka import KafkaException, Producer

addr, topic, rate = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = sys.stdout
retries = 0


def stats(text):
    global retries
    brokers = json.loads(text)["brokers"].values()
    retries = max(retries, sum(b["txretries"] + b["connects"] for b in brokers))


def failed(err):
    # Lost connections are librdkafka's to mend; only what it gives up on counts.
    if err.fatal() or not err.retriable() and err.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT"):
        print(f"E {err.name()}: {err.str()}", file=out, flush=True)


def delivered(n):
    def done(err, msg):
        print(f"E record {n}: {err.name()}: {err.str()}" if err else f"A {n} {msg.offset()}", file=out, flush=True)
    return done


producer = Producer({
    "bootstrap.servers": addr, "enable.idempotence": True, "acks": "all", "linger.ms": 2,
    "message.timeout.ms": 300000, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
    "statistics.interval.ms": 500, "stats_cb": stats, "error_cb": failed,
})
closed = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
n = 0
while not closed.is_set():
    for _ in range(max(1, rate // 100)):
        print(f"P {n}", file=out)
        while True:
            try:
                producer.produce(topic, value=b"record %d" % n, key=b"%d" % n, partition=0, on_delivery=delivered(n))
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as e:
                print(f"E {e}", file=out, flush=True)
                sys.exit(1)
        n += 1
    out.flush()
    producer.poll(0)
    closed.wait(0.01)
deadline = time.time() + 120
while len(producer) and time.time() < deadline:
    producer.poll(0.1)
producer.poll(0.6)
print(f"R {retries}", file=out, flush=True)
