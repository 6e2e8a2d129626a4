"""aiokafka: asyncio's client. Its admin part lists no offsets and deletes no groups."""

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

import protocol
from protocol import called, emit, eventually_async, expect


def version(args):
    emit("version", version=aiokafka.__version__)


def produce(args):
    asyncio.run(produce_all(args))


async def produce_all(args):
    async with AIOKafkaProducer(
        bootstrap_servers=args["bootstrap"],
        compression_type=None if args["codec"] == "none" else args["codec"],
        enable_idempotence=args["idempotent"],
        acks="all",
        linger_ms=20,
    ) as producer:
        acknowledged = [
            await producer.send(
                args["topic"],
                key=record.key,
                value=record.value,
                headers=record.headers,
                timestamp_ms=record.timestamp,
                partition=record.partition,
            )
            for record in protocol.sent(args)
        ]
        await asyncio.wait_for(asyncio.gather(*acknowledged), protocol.PATIENCE_S)
    emit("produced", count=len(acknowledged))


def consume(args):
    asyncio.run(consume_all(args))


async def consume_all(args):
    async with AIOKafkaConsumer(
        args["topic"], bootstrap_servers=args["bootstrap"], group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        left, patience = args["count"], protocol.Patience("records to consume")
        while left:
            patience.check()
            for records in (await consumer.getmany(timeout_ms=protocol.POLL_MS, max_records=left)).values():
                for record in records:
                    print_record(record)
                    left -= 1
                    patience.renew()


def print_record(record):
    protocol.emit_record(
        record.partition, record.offset, record.key, record.value, record.headers, record.timestamp
    )


class Owned(ConsumerRebalanceListener):
    """Tells of each change: before a rebalance everything goes, after it comes what is given."""

    async def on_partitions_revoked(self, revoked):
        protocol.emit_assigned([])

    async def on_partitions_assigned(self, assigned):
        protocol.emit_assigned(p.partition for p in assigned)


def member(args):
    if args["protocol"] != "eager":
        raise protocol.Failure("aiokafka has only the eager protocol")
    asyncio.run(be_member(args))


async def be_member(args):
    ended = protocol.stdin_ended()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=args["bootstrap"],
        group_id=args["group"],
        group_instance_id=args["instance"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=protocol.SESSION_MS,
        heartbeat_interval_ms=protocol.HEARTBEAT_MS,
        rebalance_timeout_ms=protocol.REBALANCE_MS,
    )
    consumer.subscribe([args["topic"]], listener=Owned())
    async with consumer:
        while not ended.is_set():
            batches = await consumer.getmany(timeout_ms=protocol.POLL_MS, max_records=100)
            for records in batches.values():
                for record in records:
                    print_record(record)
            if batches:
                await commit(consumer, {p: records[-1].offset + 1 for p, records in batches.items()})


async def commit(consumer, ends):
    try:
        await consumer.commit(ends)
    except KafkaError as refused:  # a rebalance came between
        protocol.log("commit:", repr(refused))
        return
    for partition, offset in ends.items():
        emit("committed", partition=partition.partition, offset=offset)


def admin(args):
    asyncio.run(Administration(args).run())


class Administration:
    def __init__(self, args):
        self.args = args
        self.topic = args["topic"]
        self.partition = TopicPartition(self.topic, 0)
        self.group = protocol.admin_group(args)

    async def run(self):
        self.client = AIOKafkaAdminClient(bootstrap_servers=self.args["bootstrap"])
        await self.client.start()
        try:
            await self.cluster()
            await self.create()
            await self.configs()
            await self.grow()
            await self.records()
            await self.groups()
            await self.delete()
        finally:
            await self.client.close()

    async def cluster(self):
        cluster = await self.client.describe_cluster()
        expect("brokers of the cluster", len(cluster["brokers"]) >= 1 and bool(cluster["cluster_id"]), True)
        called("describe_cluster")

    async def create(self):
        new = NewTopic(
            self.topic, protocol.PARTITIONS, 1, topic_configs={"retention.ms": protocol.RETENTION}
        )
        answer = await self.client.create_topics([new])
        expect("create_topics", [error[1] for error in answer.topic_errors], [0])
        called("create_topics")
        await eventually_async("topics listed", self.exists, True)
        called("list_topics")
        await eventually_async("partitions", self.partitions, protocol.PARTITIONS)
        called("describe_topic")

    async def exists(self):
        return self.topic in await self.client.list_topics()

    async def partitions(self):
        return len((await self.client.describe_topics([self.topic]))[0]["partitions"])

    async def configs(self):
        expect("retention", await self.retention(), protocol.RETENTION)
        called("describe_configs")
        changed = {"retention.ms": protocol.RETENTION_ALTERED}
        for answer in await self.client.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, self.topic, changed)]
        ):
            expect("alter_configs", [resource[0] for resource in answer.resources], [0])
        await eventually_async("altered retention", self.retention, protocol.RETENTION_ALTERED)
        called("alter_configs")

    async def retention(self):
        (answer,) = await self.client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self.topic)])
        ((error, _, _, _, entries),) = answer.resources
        expect("describe_configs", error, 0)
        return next(entry[1] for entry in entries if entry[0] == "retention.ms")

    async def grow(self):
        await self.client.create_partitions({self.topic: NewPartitions(protocol.GROWN)})
        await eventually_async("partitions after growth", self.partitions, protocol.GROWN)
        called("create_partitions")

    async def records(self):
        async with AIOKafkaProducer(bootstrap_servers=self.args["bootstrap"]) as producer:
            for i in range(protocol.RECORDS):
                await producer.send_and_wait(self.topic, b"%d" % i, partition=0)
        cut = {self.partition: RecordsToDelete(protocol.DELETED_BEFORE)}
        low = await self.client.delete_records(cut)
        expect("low watermark", low[self.partition], protocol.DELETED_BEFORE)
        called("delete_records")

    async def groups(self):
        async with AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.args["bootstrap"],
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=protocol.SESSION_MS,
            heartbeat_interval_ms=protocol.HEARTBEAT_MS,
        ) as consumer:
            ends = await consumer.end_offsets([self.partition])
            expect("latest offset", ends[self.partition], protocol.RECORDS)
            starts = await consumer.beginning_offsets([self.partition])
            expect("earliest offset", starts[self.partition], protocol.DELETED_BEFORE)
            called("list_offsets")
            for _ in range(protocol.CONSUMED):
                record = await asyncio.wait_for(consumer.getone(), protocol.PATIENCE_S)
            end = record.offset + 1
            await consumer.commit({self.partition: end})

        listed = [group[0] for group in await self.client.list_consumer_groups()]
        expect("group listed", self.group in listed, True)
        called("list_groups")
        await eventually_async("state of the group", self.state, "Empty")
        called("describe_group")
        committed = await self.client.list_consumer_group_offsets(self.group)
        expect("committed", committed[self.partition].offset, end)
        called("list_group_offsets")

    async def state(self):
        (answer,) = await self.client.describe_consumer_groups([self.group])
        (group,) = answer.groups
        expect("describe_group", (group[0], group[1]), (0, self.group))
        return group[2]

    async def delete(self):
        answer = await self.client.delete_topics([self.topic])
        expect("delete_topics", [error[1] for error in answer.topic_error_codes], [0])
        await eventually_async("topics listed after the deletion", self.exists, False)
        called("delete_topic")
