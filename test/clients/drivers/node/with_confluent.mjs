// @confluentinc/kafka-javascript: librdkafka's Node client. What its promise API does not have (consuming without a group,
// more partitions) is done by its callback API. Neither describes or alters configs, or describes the cluster.
import { setTimeout as sleep } from 'node:timers/promises'
import { load } from './packages.mjs'
import * as protocol from './protocol.mjs'
import { called, eventually, expect } from './protocol.mjs'

const { AdminClient, CODES, KafkaConsumer, KafkaJS } = load('@confluentinc/kafka-javascript')
const { Kafka, PartitionAssigners, logLevel } = KafkaJS

function logger () {
  const to = level => (...words) => protocol.log(level, ...words)
  return {
    info: to('INFO'), error: to('ERROR'), warn: to('WARN'), debug: () => {}, namespace: logger, setLogLevel: () => {}
  }
}

function connect (args) {
  return new Kafka({ kafkaJS: { brokers: args.bootstrap.split(','), clientId: 'driver', logLevel: logLevel.INFO, logger: logger() } })
}

export function version () {
  protocol.emit('version', { version: load('@confluentinc/kafka-javascript/package.json').version })
}

export async function produce (args) {
  const producer = connect(args).producer({
    kafkaJS: { acks: -1, idempotent: args.idempotent, compression: args.codec }, 'linger.ms': 20
  })
  await producer.connect()
  const messages = protocol.sent(args).map(record => ({ ...record, timestamp: String(record.timestamp) }))
  await producer.send({ topic: args.topic, messages })
  await producer.disconnect()
  protocol.emit('produced', { count: messages.length })
}

export async function consume (args) {
  // A group's name is required; without subscribe and commit no group comes of it.
  const consumer = new KafkaConsumer(
    { 'bootstrap.servers': args.bootstrap, 'group.id': 'none', 'enable.auto.commit': false },
    { 'auto.offset.reset': 'earliest' }
  )
  await protocol.within('records to consume', new Promise((resolve, reject) => {
    let left = args.count
    consumer.on('event.error', reject)
    consumer.on('ready', (_, { topics }) => {
      const { partitions } = topics.find(({ name }) => name === args.topic)
      consumer.assign(partitions.map(({ id }) => ({ topic: args.topic, partition: id, offset: 0 })))
      consumer.consume()
    })
    consumer.on('data', m => {
      // Here headers are a list of objects of one name each.
      const headers = m.headers.flatMap(Object.entries)
      if (left > 0) protocol.emitRecord(m.partition, m.offset, m.key, m.value, headers, m.timestamp)
      if (--left <= 0) resolve()
    })
    consumer.connect({ topic: args.topic }, error => error && reject(error))
  }))
  await new Promise(resolve => consumer.disconnect(resolve))
}

const GROUP_SETTINGS = {
  sessionTimeout: protocol.SESSION_MS,
  heartbeatInterval: protocol.HEARTBEAT_MS,
  rebalanceTimeout: protocol.REBALANCE_MS,
  maxWaitTimeInMs: protocol.WAIT_MS,
  fromBeginning: true,
  autoCommit: false
}

export async function member (args) {
  const owned = new Set()
  const strategy = args.protocol === 'cooperative' ? PartitionAssigners.cooperativeSticky : PartitionAssigners.range
  const consumer = connect(args).consumer({
    kafkaJS: { groupId: args.group, ...GROUP_SETTINGS, partitionAssigners: [strategy] },
    ...(args.instance && { 'group.instance.id': args.instance }),
    // In both protocols what is given is what comes and what goes.
    rebalance_cb: (event, changed) => {
      const change = event.code === CODES.ERRORS.ERR__ASSIGN_PARTITIONS ? p => owned.add(p) : p => owned.delete(p)
      changed.forEach(({ partition }) => change(partition))
      protocol.emitAssigned(owned)
    }
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [args.topic] })
  let leaving = false
  let work = Promise.resolve()
  const process = async ({ batch }) => {
    if (leaving) return
    for (const m of batch.messages) {
      protocol.emitRecord(batch.partition, m.offset, m.key, m.value, protocol.headerPairs(m.headers), m.timestamp)
    }
    await commit(consumer, args.topic, batch.partition, BigInt(batch.lastOffset()) + 1n, owned)
  }
  await consumer.run({ eachBatch: payload => (work = process(payload)) })
  await protocol.stdinEnded()
  leaving = true
  await work
  await consumer.disconnect()
}

// How often a commit is looked for, and how often that until it is sent again.
const LOOK_MS = 10
const LOOKS = 100

// Commits, and looks until it is committed: the client says that a commit is done when it has sent it, and the broker may
// refuse it in a rebalance. Sends it again, until it is there or another has the partition.
async function commit (consumer, topic, partition, offset, owned) {
  for (let look = 0; owned.has(partition); look++) {
    try {
      if (look % LOOKS === 0) await consumer.commitOffsets([{ topic, partition, offset: String(offset) }])
      const [committed] = await consumer.committed([{ topic, partition }], protocol.SESSION_MS)
      if (BigInt(committed.offset ?? -1) >= offset) return protocol.emitCommitted(partition, offset)
    } catch (error) {
      protocol.log('commit:', error)
    }
    await sleep(LOOK_MS)
  }
}

export async function admin (args) {
  const kafka = connect(args)
  const client = kafka.admin()
  await client.connect()
  await create(client, args.topic)
  await grow(client, args)
  await records(kafka, client, args.topic)
  await groups(kafka, client, args)
  await remove(client, args.topic)
  await client.disconnect()
}

async function create (client, topic) {
  const configEntries = [{ name: 'retention.ms', value: protocol.RETENTION }]
  const topics = [{ topic, numPartitions: protocol.PARTITIONS, replicationFactor: 1, configEntries }]
  expect('createTopics', await client.createTopics({ topics }), true)
  called('create_topics')
  await eventually('topics listed', async () => (await client.listTopics()).includes(topic), true)
  called('list_topics')
  await eventually('partitions', () => partitions(client, topic), protocol.PARTITIONS)
  called('describe_topic')
}

async function partitions (client, topic) {
  const [described] = await client.fetchTopicMetadata({ topics: [topic] })
  return described.partitions.length
}

async function grow (client, args) {
  const other = AdminClient.create({ 'bootstrap.servers': args.bootstrap })
  await new Promise((resolve, reject) => {
    other.createPartitions(args.topic, protocol.GROWN, 10_000, error => error ? reject(error) : resolve())
  })
  other.disconnect()
  await eventually('partitions after growth', () => partitions(client, args.topic), protocol.GROWN)
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
  const [deleted] = await client.deleteTopicRecords({
    topic, partitions: [{ partition: 0, offset: String(protocol.DELETED_BEFORE) }]
  })
  expect('low watermark', deleted.lowWatermark, protocol.DELETED_BEFORE)
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
  const state = async () => (await client.describeGroups([groupId])).groups[0].state
  await eventually('state of the group', state, KafkaJS.ConsumerGroupStates.EMPTY)
  called('describe_group')
  const [committed] = await client.fetchOffsets({ groupId, topics: [{ topic: args.topic, partitions: [0] }] })
  expect('committed', committed.partitions[0].offset, end)
  called('list_group_offsets')
  await client.deleteGroups([groupId])
  await eventually('group listed after it was deleted', listed, false)
  called('delete_group')
}

async function consumeInGroup (kafka, topic, groupId, end) {
  const consumer = kafka.consumer({ kafkaJS: { groupId, ...GROUP_SETTINGS } })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  await protocol.within('a record for the group', new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async () => resolve() }).catch(reject)
  }))
  await consumer.commitOffsets([{ topic, partition: 0, offset: end }])
  await consumer.disconnect()
}

async function remove (client, topic) {
  await client.deleteTopics({ topics: [topic] })
  await eventually('topics listed after the deletion', async () => (await client.listTopics()).includes(topic), false)
  called('delete_topic')
}
