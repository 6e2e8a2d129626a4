// kafkajs. Its codecs but gzip are plugins: kafkajs-snappy, lz4-napi and Node's own zstd.
// It has no static members and only the eager protocol, and every consumer of it is a member of a group.
import { randomUUID } from 'node:crypto'
import zlib from 'node:zlib'
import { promisify } from 'node:util'
import { load } from './packages.mjs'
import * as protocol from './protocol.mjs'
import { called, eventually, expect } from './protocol.mjs'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = load('kafkajs')

const lz4 = load('lz4-napi')
CompressionCodecs[CompressionTypes.Snappy] = load('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: lz4.decompressFrame
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => promisify(zlib.zstdCompress)(encoder.buffer),
  decompress: promisify(zlib.zstdDecompress)
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

function connect (args) {
  const logCreator = () => ({ label, namespace, log }) => protocol.log(label, namespace, JSON.stringify(log))
  return new Kafka({ brokers: args.bootstrap.split(','), clientId: 'driver', logLevel: logLevel.INFO, logCreator })
}

export function version () {
  protocol.emit('version', { version: load('kafkajs/package.json').version })
}

export async function produce (args) {
  // Idempotence in kafkajs wants one request at a time.
  const producer = connect(args).producer({ idempotent: args.idempotent, ...(args.idempotent && { maxInFlightRequests: 1 }) })
  await producer.connect()
  const messages = protocol.sent(args).map(record => ({ ...record, timestamp: String(record.timestamp) }))
  await producer.send({ topic: args.topic, acks: -1, compression: CODECS[args.codec], messages })
  await producer.disconnect()
  protocol.emit('produced', { count: messages.length })
}

export async function consume (args) {
  const consumer = connect(args).consumer({ groupId: `driver-${randomUUID()}`, maxWaitTimeInMs: protocol.WAIT_MS })
  let left = args.count
  await consumer.connect()
  await consumer.subscribe({ topics: [args.topic], fromBeginning: true })
  await protocol.within('records to consume', new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (left > 0) emitMessage(partition, message)
        if (--left <= 0) resolve()
      }
    }).catch(reject)
  }))
  await consumer.disconnect()
}

function emitMessage (partition, m) {
  protocol.emitRecord(partition, m.offset, m.key, m.value, protocol.headerPairs(m.headers), m.timestamp)
}

const GROUP_SETTINGS = {
  sessionTimeout: protocol.SESSION_MS,
  heartbeatInterval: protocol.HEARTBEAT_MS,
  rebalanceTimeout: protocol.REBALANCE_MS,
  maxWaitTimeInMs: protocol.WAIT_MS
}

export async function member (args) {
  if (args.instance !== null) throw new protocol.Failure('kafkajs has no static members')
  if (args.protocol !== 'eager') throw new protocol.Failure('kafkajs has only the eager protocol')
  const consumer = connect(args).consumer({ groupId: args.group, ...GROUP_SETTINGS })
  const crashed = new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
  })
  consumer.on(consumer.events.REBALANCING, () => protocol.emitAssigned([]))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => protocol.emitAssigned(payload.memberAssignment[args.topic] ?? []))
  await consumer.connect()
  await consumer.subscribe({ topics: [args.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      for (const message of batch.messages) emitMessage(batch.partition, message)
      const offset = String(BigInt(batch.lastOffset()) + 1n)
      // A refused commit goes to the client, which joins again.
      await consumer.commitOffsets([{ topic: args.topic, partition: batch.partition, offset }])
      protocol.emitCommitted(batch.partition, offset)
      await heartbeat()
    }
  })
  await Promise.race([protocol.stdinEnded(), crashed])
  await consumer.disconnect()
}

export async function admin (args) {
  const kafka = connect(args)
  const client = kafka.admin()
  await client.connect()
  await cluster(client)
  await create(client, args.topic)
  await configs(client, args.topic)
  await grow(client, args.topic)
  await records(kafka, client, args.topic)
  await groups(kafka, client, args)
  await remove(client, args.topic)
  await client.disconnect()
}

async function cluster (client) {
  const { brokers, clusterId } = await client.describeCluster()
  expect('brokers of the cluster', brokers.length >= 1 && clusterId !== '', true)
  called('describe_cluster')
}

async function create (client, topic) {
  const configEntries = [{ name: 'retention.ms', value: protocol.RETENTION }]
  expect('createTopics', await client.createTopics({
    waitForLeaders: true, topics: [{ topic, numPartitions: protocol.PARTITIONS, configEntries }]
  }), true)
  called('create_topics')
  await eventually('topics listed', async () => (await client.listTopics()).includes(topic), true)
  called('list_topics')
  await eventually('partitions', () => partitions(client, topic), protocol.PARTITIONS)
  called('describe_topic')
}

async function partitions (client, topic) {
  const { topics } = await client.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions.length
}

async function configs (client, topic) {
  expect('retention', await retention(client, topic), protocol.RETENTION)
  called('describe_configs')
  const configEntries = [{ name: 'retention.ms', value: protocol.RETENTION_ALTERED }]
  await client.alterConfigs({
    validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }]
  })
  await eventually('altered retention', () => retention(client, topic), protocol.RETENTION_ALTERED)
  called('alter_configs')
}

async function retention (client, topic) {
  const { resources } = await client.describeConfigs({
    includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }]
  })
  return resources[0].configEntries[0].configValue
}

async function grow (client, topic) {
  await client.createPartitions({ topicPartitions: [{ topic, count: protocol.GROWN }] })
  await eventually('partitions after growth', () => partitions(client, topic), protocol.GROWN)
  called('create_partitions')
}

async function records (kafka, client, topic) {
  const producer = kafka.producer()
  await producer.connect()
  const messages = Array.from({ length: protocol.RECORDS }, (_, i) => ({ value: `${i}`, partition: 0 }))
  await producer.send({ topic, messages })
  await producer.disconnect()
  expect('latest offset', (await offsets(client, topic)).high, String(protocol.RECORDS))
  called('list_offsets')
  await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: String(protocol.DELETED_BEFORE) }] })
  expect('earliest offset', (await offsets(client, topic)).low, String(protocol.DELETED_BEFORE))
  called('delete_records')
}

async function offsets (client, topic) {
  return (await client.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0)
}

async function groups (kafka, client, args) {
  const groupId = protocol.adminGroup(args)
  const end = String(protocol.DELETED_BEFORE + protocol.CONSUMED)
  await consumeInGroup(kafka, args.topic, groupId, end)
  const listed = async () => (await client.listGroups()).groups.some(group => group.groupId === groupId)
  expect('group listed', await listed(), true)
  called('list_groups')
  await eventually('state of the group', async () => (await client.describeGroups([groupId])).groups[0].state, 'Empty')
  called('describe_group')
  const [committed] = await client.fetchOffsets({ groupId, topics: [args.topic] })
  expect('committed', committed.partitions.find(({ partition }) => partition === 0).offset, end)
  called('list_group_offsets')
  await client.deleteGroups([groupId])
  await eventually('group listed after it was deleted', listed, false)
  called('delete_group')
}

async function consumeInGroup (kafka, topic, groupId, end) {
  const consumer = kafka.consumer({ groupId, ...GROUP_SETTINGS })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await protocol.within('a record for the group', new Promise((resolve, reject) => {
    consumer.run({ autoCommit: false, eachMessage: async () => resolve() }).catch(reject)
  }))
  await consumer.commitOffsets([{ topic, partition: 0, offset: end }])
  await consumer.disconnect()
}

async function remove (client, topic) {
  await client.deleteTopics({ topics: [topic] })
  await eventually('topics listed after the deletion', async () => (await client.listTopics()).includes(topic), false)
  called('delete_topic')
}
