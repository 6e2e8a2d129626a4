"""confluent-kafka: librdkafka's Python client."""

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

import protocol
from protocol import called, emit, eventually, expect


def version(args):
    emit("version", version=confluent_kafka.__version__)


def produce(args):
    producer = Producer(
        {
            "bootstrap.servers": args["bootstrap"],
            "compression.type": args["codec"],
            "enable.idempotence": args["idempotent"],
            "acks": "all",
            "linger.ms": 20,
        }
    )
    failed = []

    def delivered(error, _):
        if error:
            failed.append(error)

    for record in protocol.sent(args):
        where = {} if record.partition is None else {"partition": record.partition}
        producer.produce(
            args["topic"],
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp=record.timestamp,
            on_delivery=delivered,
            **where,
        )
        producer.poll(0)
    left = producer.flush(protocol.PATIENCE_S)
    if left or failed:
        raise protocol.Failure(f"{left} records neither acknowledged nor refused, refused: {failed[:3]}")
    emit("produced", count=args["count"])


def consume(args):
    # A group's name is required; without subscribe and commit no group comes of it.
    consumer = Consumer(
        {"bootstrap.servers": args["bootstrap"], "group.id": "none", "enable.auto.commit": False}
    )
    topic = consumer.list_topics(args["topic"], protocol.PATIENCE_S).topics[args["topic"]]
    consumer.assign([TopicPartition(args["topic"], p, confluent_kafka.OFFSET_BEGINNING) for p in topic.partitions])
    left, patience = args["count"], protocol.Patience("records to consume")
    while left:
        patience.check()
        for message in consumer.consume(left, protocol.POLL_MS / 1000):
            print_message(message)
            left -= 1
            patience.renew()
    consumer.close()


def print_message(message):
    if message.error():
        raise protocol.Failure(f"consume: {message.error()}")
    protocol.emit_record(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp()[1],
    )


def member(args):
    cooperative = args["protocol"] == "cooperative"
    settings = {
        "bootstrap.servers": args["bootstrap"],
        "group.id": args["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range,roundrobin",
        "session.timeout.ms": protocol.SESSION_MS,
        "heartbeat.interval.ms": protocol.HEARTBEAT_MS,
        "max.poll.interval.ms": protocol.REBALANCE_MS,
    }
    if args["instance"]:
        settings["group.instance.id"] = args["instance"]
    consumer = Consumer(settings)
    owned, ends = set(), {}  # ends: what is processed and not committed

    # In both protocols what is given is what comes and what goes.
    def assigned(_, partitions):
        owned.update(p.partition for p in partitions)
        protocol.emit_assigned(owned)

    def revoked(_, partitions):
        for p in partitions:
            owned.discard(p.partition)
            ends.pop(p.partition, None)
        protocol.emit_assigned(owned)

    ended = protocol.stdin_ended()
    consumer.subscribe([args["topic"]], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not ended.is_set():
        for message in consumer.consume(100, protocol.POLL_MS / 1000):
            if message.error():
                protocol.log(message.error())
                continue
            print_message(message)
            ends[message.partition()] = message.offset() + 1
        if ends:
            commit(consumer, args["topic"], ends)
    consumer.close()


def commit(consumer, topic, ends):
    """Commits, and leaves in ends what was refused, as it is when a rebalance comes between."""
    offsets = [TopicPartition(topic, partition, offset) for partition, offset in ends.items()]
    try:
        answers = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as refused:
        protocol.log("commit:", refused)
        return
    for answer in answers:
        if answer.error:
            protocol.log("commit:", answer)
        else:
            emit("committed", partition=answer.partition, offset=answer.offset)
            ends.pop(answer.partition, None)


def admin(args):
    Administration(args).run()


class Administration:
    def __init__(self, args):
        self.args = args
        self.topic = args["topic"]
        self.group = protocol.admin_group(args)
        self.client = AdminClient({"bootstrap.servers": args["bootstrap"]})

    def run(self):
        self.cluster()
        self.create()
        self.configs()
        self.grow()
        self.records()
        self.groups()
        self.delete()

    def cluster(self):
        cluster = self.client.describe_cluster().result()
        expect("brokers of the cluster", len(cluster.nodes) >= 1 and bool(cluster.cluster_id), True)
        called("describe_cluster")

    def create(self):
        new = NewTopic(self.topic, protocol.PARTITIONS, config={"retention.ms": protocol.RETENTION})
        self.client.create_topics([new])[self.topic].result()
        called("create_topics")
        eventually("topics listed", lambda: self.topic in self.client.list_topics().topics, True)
        called("list_topics")
        eventually("partitions", self.partitions, protocol.PARTITIONS)
        called("describe_topic")

    def partitions(self):
        described = self.client.describe_topics(confluent_kafka.TopicCollection([self.topic]))
        return len(described[self.topic].result().partitions)

    def configs(self):
        expect("retention", self.retention(), protocol.RETENTION)
        called("describe_configs")
        change = ConfigResource(
            ResourceType.TOPIC,
            self.topic,
            incremental_configs=[
                ConfigEntry(
                    "retention.ms", protocol.RETENTION_ALTERED, incremental_operation=AlterConfigOpType.SET
                )
            ],
        )
        self.client.incremental_alter_configs([change])[change].result()
        eventually("altered retention", self.retention, protocol.RETENTION_ALTERED)
        called("alter_configs")

    def retention(self):
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        return self.client.describe_configs([resource])[resource].result()["retention.ms"].value

    def grow(self):
        self.client.create_partitions([NewPartitions(self.topic, protocol.GROWN)])[self.topic].result()
        eventually("partitions after growth", self.partitions, protocol.GROWN)
        called("create_partitions")

    def records(self):
        producer = Producer({"bootstrap.servers": self.args["bootstrap"]})
        for i in range(protocol.RECORDS):
            producer.produce(self.topic, value=b"%d" % i, partition=0)
        expect("records not sent", producer.flush(protocol.PATIENCE_S), 0)
        expect("latest offset", self.offset(OffsetSpec.latest()), protocol.RECORDS)
        called("list_offsets")
        cut = TopicPartition(self.topic, 0, protocol.DELETED_BEFORE)
        low = self.client.delete_records([cut])[cut].result().low_watermark
        expect("low watermark", low, protocol.DELETED_BEFORE)
        expect("earliest offset", self.offset(OffsetSpec.earliest()), protocol.DELETED_BEFORE)
        called("delete_records")

    def offset(self, spec):
        partition = TopicPartition(self.topic, 0)
        return self.client.list_offsets({partition: spec})[partition].result().offset

    def groups(self):
        consumer = Consumer(
            {
                "bootstrap.servers": self.args["bootstrap"],
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": protocol.SESSION_MS,
            }
        )
        consumer.subscribe([self.topic])
        patience, seen = protocol.Patience("a record for the group"), 0
        while seen < protocol.CONSUMED:
            patience.check()
            seen += len(consumer.consume(protocol.CONSUMED - seen, protocol.POLL_MS / 1000))
        end = TopicPartition(self.topic, 0, protocol.DELETED_BEFORE + seen)
        consumer.commit(offsets=[end], asynchronous=False)
        consumer.close()

        expect("group listed", self.listed(), True)
        called("list_groups")
        eventually("state of the group", self.state, "EMPTY")
        called("describe_group")
        asked = confluent_kafka.ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.topic, 0)])
        answer = self.client.list_consumer_group_offsets([asked])[self.group].result()
        expect("committed", answer.topic_partitions[0].offset, end.offset)
        called("list_group_offsets")
        self.client.delete_consumer_groups([self.group])[self.group].result()
        eventually("group listed after it was deleted", self.listed, False)
        called("delete_group")

    def listed(self):
        return self.group in [g.group_id for g in self.client.list_consumer_groups().result().valid]

    def state(self):
        return self.client.describe_consumer_groups([self.group])[self.group].result().state.name

    def delete(self):
        self.client.delete_topics([self.topic])[self.topic].result()
        eventually("topics listed after the deletion", lambda: self.topic in self.client.list_topics().topics, False)
        called("delete_topic")
