"""Sends numbered records with librdkafka, idempotent, acks=all, to each partition of a topic, and reads them as a group of
one, until its standard input ends; then it flushes, reads the rest and ends.

For each line of its input it prints "P" and the longest times, in milliseconds, that any partition acknowledged
nothing and that nothing was read, since the last such line. "E" and a text is an error that a program would see, a
record that was left out, or one that was never answered. At the end it prints "R", how many were acknowledged and read.
"""
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer

addr, topic, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3])
EVERY = 0.01
lock = threading.Lock()
sent, acked = [0] * partitions, [0] * partitions
last_ack, ack_pause = [time.monotonic()] * partitions, 0.0
seen, total_read, last_read, read_pause = [0] * partitions, 0, time.monotonic(), 0.0
closed, over = threading.Event(), threading.Event()


def say(text):
    with lock:
        print(text, flush=True)


def failed(err):
    # Lost connections are librdkafka's to mend; only what it gives up on counts.
    if err.fatal() or not err.retriable() and err.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT"):
        say(f"E {err.name()}: {err.str()}")


def delivered(err, msg):
    global ack_pause
    if err:
        say(f"E a record: {err.name()}: {err.str()}")
        return
    p, now = msg.partition(), time.monotonic()
    ack_pause = max(ack_pause, now - last_ack[p])
    last_ack[p] = now
    acked[p] += 1


def read():
    global total_read, last_read, read_pause
    consumer = Consumer({"bootstrap.servers": addr, "group.id": topic, "auto.offset.reset": "earliest", "error_cb": failed,
                         "fetch.wait.max.ms": 100, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200})
    consumer.subscribe([topic])
    while not over.is_set():
        msg = consumer.poll(0.1)
        if msg is None:
            continue
        if msg.error():
            failed(msg.error())
            continue
        p, n, now = msg.partition(), int(msg.value()), time.monotonic()
        if n > seen[p] + 1:
            say(f"E partition {p}: record {n} was read after {seen[p]}")
        if n == seen[p] + 1:
            total_read += 1
        seen[p] = max(seen[p], n)
        if total_read > 1:
            read_pause = max(read_pause, now - last_read)
        last_read = now
    consumer.close()


def listen():
    global ack_pause, read_pause
    for _ in sys.stdin:
        now = time.monotonic()
        acks = max([ack_pause] + [now - t for t in last_ack])
        say(f"P {acks * 1000:.0f} {max(read_pause, now - last_read) * 1000:.0f}")
        ack_pause = read_pause = 0.0
        last_ack[:] = [now] * partitions
    closed.set()


producer = Producer({
    "bootstrap.servers": addr, "enable.idempotence": True, "acks": "all", "linger.ms": 0, "message.timeout.ms": 120000,
    "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "error_cb": failed,
})
reader = threading.Thread(target=read)
reader.start()
threading.Thread(target=listen, daemon=True).start()
while not closed.is_set():
    for p in range(partitions):
        try:
            producer.produce(topic, value=b"%d" % (sent[p] + 1), partition=p, on_delivery=delivered)
            sent[p] += 1
        except BufferError:
            pass
        except KafkaException as e:
            say(f"E {e}")
    producer.poll(EVERY)
if left := producer.flush(120):
    say(f"E {left} records were never answered")
deadline = time.monotonic() + 60
while seen != sent and time.monotonic() < deadline:
    time.sleep(EVERY)
if seen != sent:
    say(f"E read up to {seen} of {sent}")
over.set()
reader.join()
say(f"R {sum(acked)} {total_read}")
