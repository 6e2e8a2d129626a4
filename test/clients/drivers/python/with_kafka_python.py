"""kafka-python."""

import kafka
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.structs import OffsetAndMetadata

import protocol
from protocol import called, emit, eventually, expect


def version(args):
    emit("version", version=kafka.__version__)


def produce(args):
    producer = KafkaProducer(
        bootstrap_servers=args["bootstrap"],
        compression_type=None if args["codec"] == "none" else args["codec"],
        enable_idempotence=args["idempotent"],
        acks="all",
        linger_ms=20,
    )
    acknowledged = [
        producer.send(
            args["topic"],
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp_ms=record.timestamp,
            partition=record.partition,
        )
        for record in protocol.sent(args)
    ]
    for future in acknowledged:
        future.get(protocol.PATIENCE_S)
    producer.close()
    emit("produced", count=len(acknowledged))


def consume(args):
    consumer = KafkaConsumer(
        args["topic"], bootstrap_servers=args["bootstrap"], group_id=None, auto_offset_reset="earliest"
    )
    left, patience = args["count"], protocol.Patience("records to consume")
    while left:
        patience.check()
        for records in consumer.poll(protocol.POLL_MS, max_records=left).values():
            for record in records:
                print_record(record)
                left -= 1
                patience.renew()
    consumer.close()


def print_record(record):
    protocol.emit_record(
        record.partition, record.offset, record.key, record.value, record.headers, record.timestamp
    )


class Owned(ConsumerRebalanceListener):
    """Tells of each change: what is given is what comes and what goes, in both protocols."""

    def __init__(self):
        self.partitions = set()
        self.ends = {}  # what is processed and not committed

    def on_partitions_assigned(self, assigned):
        self.partitions.update(p.partition for p in assigned)
        protocol.emit_assigned(self.partitions)

    def on_partitions_revoked(self, revoked):
        for p in revoked:
            self.partitions.discard(p.partition)
            self.ends.pop(p, None)
        protocol.emit_assigned(self.partitions)

    def on_partitions_lost(self, lost):
        self.on_partitions_revoked(lost)


def learn(consumer, topic):
    """Lets a consumer know a topic's partitions before it joins a group.

    Otherwise it joins, assigns nothing, and joins again when it has heard of them. If poll's time ends in the midst of
    that second joining, kafka-python 3.0.12 forgets the answer and waits for ever, on Apache Kafka as well. And it
    fails at once where the broker that it happens to ask has just died, instead of asking another.
    """

    def known():
        try:
            return bool(consumer.partitions_for_topic(topic))
        except KafkaConnectionError:
            return False

    eventually(f"topic {topic} known", known, True)


def member(args):
    cooperative = args["protocol"] == "cooperative"
    consumer = KafkaConsumer(
        bootstrap_servers=args["bootstrap"],
        group_id=args["group"],
        group_instance_id=args["instance"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[CooperativeStickyAssignor if cooperative else RangePartitionAssignor],
        session_timeout_ms=protocol.SESSION_MS,
        heartbeat_interval_ms=protocol.HEARTBEAT_MS,
        max_poll_interval_ms=protocol.REBALANCE_MS,
    )
    ended = protocol.stdin_ended()
    learn(consumer, args["topic"])
    owned = Owned()
    consumer.subscribe([args["topic"]], listener=owned)
    while not ended.is_set():
        for partition, records in consumer.poll(protocol.POLL_MS, max_records=100).items():
            for record in records:
                print_record(record)
            owned.ends[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        if owned.ends:
            commit(consumer, owned.ends)
    consumer.close()


def commit(consumer, ends):
    """Commits, and leaves in ends what was refused, as it is when a rebalance comes between."""
    asked = dict(ends)
    try:
        consumer.commit(asked)
    except KafkaError as refused:
        protocol.log("commit:", repr(refused))
        return
    for partition, end in asked.items():
        emit("committed", partition=partition.partition, offset=end.offset)
        ends.pop(partition, None)


def admin(args):
    Administration(args).run()


class Administration:
    def __init__(self, args):
        self.args = args
        self.topic = args["topic"]
        self.group = protocol.admin_group(args)
        self.client = KafkaAdminClient(bootstrap_servers=args["bootstrap"])

    def run(self):
        self.cluster()
        self.create()
        self.configs()
        self.grow()
        self.records()
        self.groups()
        self.delete()
        self.client.close()

    def cluster(self):
        cluster = self.client.describe_cluster()
        expect("brokers of the cluster", len(cluster["brokers"]) >= 1 and bool(cluster["cluster_id"]), True)
        called("describe_cluster")

    def create(self):
        new = {
            self.topic: {
                "num_partitions": protocol.PARTITIONS,
                "replication_factor": 1,
                "configs": {"retention.ms": protocol.RETENTION},
            }
        }
        self.client.create_topics(new)
        called("create_topics")
        eventually("topics listed", lambda: self.topic in self.client.list_topics(), True)
        called("list_topics")
        eventually("partitions", self.partitions, protocol.PARTITIONS)
        called("describe_topic")

    def partitions(self):
        return len(self.client.describe_topics([self.topic])[0]["partitions"])

    def configs(self):
        expect("retention", self.retention(), protocol.RETENTION)
        called("describe_configs")
        change = ConfigResource("TOPIC", self.topic, {"retention.ms": protocol.RETENTION_ALTERED})
        answer = self.client.alter_configs([change], incremental=True)
        expect("alter_configs", answer["topic"][self.topic], "OK")
        eventually("altered retention", self.retention, protocol.RETENTION_ALTERED)
        called("alter_configs")

    def retention(self):
        described = self.client.describe_configs([ConfigResource("TOPIC", self.topic)])
        return described["topic"][self.topic]["retention.ms"]["value"]

    def grow(self):
        self.client.create_partitions({self.topic: protocol.GROWN})
        eventually("partitions after growth", self.partitions, protocol.GROWN)
        called("create_partitions")

    def records(self):
        producer = KafkaProducer(bootstrap_servers=self.args["bootstrap"])
        for i in range(protocol.RECORDS):
            producer.send(self.topic, value=b"%d" % i, partition=0).get(protocol.PATIENCE_S)
        producer.close()
        expect("latest offset", self.offset(OffsetSpec.LATEST), protocol.RECORDS)
        called("list_offsets")
        cut = TopicPartition(self.topic, 0)
        low = self.client.delete_records({cut: protocol.DELETED_BEFORE})[cut]["low_watermark"]
        expect("low watermark", low, protocol.DELETED_BEFORE)
        expect("earliest offset", self.offset(OffsetSpec.EARLIEST), protocol.DELETED_BEFORE)
        called("delete_records")

    def offset(self, spec):
        partition = TopicPartition(self.topic, 0)
        return self.client.list_partition_offsets({partition: spec})[partition].offset

    def groups(self):
        consumer = KafkaConsumer(
            bootstrap_servers=self.args["bootstrap"],
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=protocol.SESSION_MS,
            heartbeat_interval_ms=protocol.HEARTBEAT_MS,
        )
        learn(consumer, self.topic)
        consumer.subscribe([self.topic])
        patience, seen = protocol.Patience("a record for the group"), 0
        while seen < protocol.CONSUMED:
            patience.check()
            for records in consumer.poll(protocol.POLL_MS, max_records=protocol.CONSUMED - seen).values():
                seen += len(records)
        partition, end = TopicPartition(self.topic, 0), protocol.DELETED_BEFORE + seen
        consumer.commit({partition: OffsetAndMetadata(end, "", -1)})
        consumer.close()

        expect("group listed", self.listed(), True)
        called("list_groups")
        eventually("state of the group", self.state, "Empty")
        called("describe_group")
        committed = self.client.list_group_offsets({self.group: [partition]})
        expect("committed", committed[self.group][partition].offset, end)
        called("list_group_offsets")
        expect("delete_group", self.client.delete_groups([self.group]), {self.group: "OK"})
        eventually("group listed after it was deleted", self.listed, False)
        called("delete_group")

    def listed(self):
        return self.group in [g["group_id"] for g in self.client.list_groups()]

    def state(self):
        return self.client.describe_groups([self.group])[self.group]["group_state"]

    def delete(self):
        self.client.delete_topics([self.topic])
        eventually("topics listed after the deletion", lambda: self.topic in self.client.list_topics(), False)
        called("delete_topic")
