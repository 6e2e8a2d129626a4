// @platformatic/kafka. Every consumer of it is a member of a group.
import { randomUUID } from 'node:crypto'
import { load } from './packages.mjs'
import * as protocol from './protocol.mjs'
import { called, eventually, expect } from './protocol.mjs'

const {
  Admin, Consumer, ConfigResourceTypes, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps, ProduceAcks, Producer,
  stringSerializers
} = load('@platformatic/kafka')

const connection = args => ({ clientId: 'driver', bootstrapBrokers: [args.bootstrap] })

const GROUP_SETTINGS = {
  sessionTimeout: protocol.SESSION_MS,
  heartbeatInterval: protocol.HEARTBEAT_MS,
  rebalanceTimeout: protocol.REBALANCE_MS,
  maxWaitTime: protocol.WAIT_MS,
  autocommit: false
}

export function version () {
  // Its exports do not have its package.json.
  protocol.emit('version', { version: load(load.resolve('@platformatic/kafka').replace('dist/index.js', 'package.json')).version })
}

export async function produce (args) {
  const producer = new Producer({ ...connection(args), idempotent: args.idempotent, serializers: stringSerializers })
  const messages = protocol.sent(args)
    .map(record => ({ ...record, topic: args.topic, timestamp: BigInt(record.timestamp) }))
  await producer.send({ messages, acks: ProduceAcks.ALL, compression: args.codec })
  await producer.close()
  protocol.emit('produced', { count: messages.length })
}

export async function consume (args) {
  const consumer = new Consumer({ ...connection(args), groupId: `driver-${randomUUID()}`, ...GROUP_SETTINGS })
  const stream = await consumer.consume({ topics: [args.topic], mode: 'earliest' })
  let left = args.count
  await protocol.within('records to consume', (async () => {
    for await (const message of stream) {
      emitMessage(message)
      if (--left <= 0) break
    }
  })())
  await consumer.close(true)
}

function emitMessage (m) {
  protocol.emitRecord(m.partition, m.offset, m.key, m.value, m.headerEntries, m.timestamp)
}

// How many records go with one commit at most.
const BATCH = 100

export async function member (args) {
  const protocols = [{ name: args.protocol === 'cooperative' ? 'cooperative-sticky' : 'roundrobin', version: 1 }]
  const consumer = new Consumer({
    ...connection(args),
    groupId: args.group,
    ...GROUP_SETTINGS,
    protocols,
    ...(args.instance && { groupInstanceId: args.instance })
  })
  if (args.protocol === 'eager') consumer.on('consumer:group:rebalance', () => protocol.emitAssigned([]))
  consumer.on('consumer:group:join', ({ assignments }) => {
    protocol.emitAssigned(assignments?.find(({ topic }) => topic === args.topic)?.partitions ?? [])
  })
  consumer.on('error', error => protocol.log('consumer:', error)) // as when it is closed in a rebalance
  consumer.on('consumer:heartbeat:error', ({ error }) => protocol.log('heartbeat:', error))
  const stream = await consumer.consume({ topics: [args.topic], mode: 'committed', fallbackMode: 'earliest' })
  protocol.stdinEnded().then(() => stream.close())
  const ends = new Map()
  let uncommitted = 0
  for await (const message of stream) {
    emitMessage(message)
    ends.set(message.partition, { offset: message.offset + 1n, leaderEpoch: message.leaderEpoch })
    if (++uncommitted >= BATCH || stream.readableLength === 0) {
      await commit(consumer, args.topic, ends)
      ends.clear()
      uncommitted = 0
    }
  }
  await consumer.close(true)
}

async function commit (consumer, topic, ends) {
  try {
    await consumer.commit({ offsets: Array.from(ends, ([partition, end]) => ({ topic, partition, ...end })) })
  } catch (error) { // in a rebalance, after the client tried again by itself
    protocol.log('commit:', error)
    return
  }
  for (const [partition, { offset }] of ends) protocol.emitCommitted(partition, offset)
}

export async function admin (args) {
  const client = new Admin(connection(args))
  await cluster(client)
  await create(client, args.topic)
  await configs(client, args.topic)
  await grow(client, args.topic)
  await records(client, args)
  await groups(client, args)
  await remove(client, args.topic)
  await client.close()
}

async function cluster (client) {
  const { brokers, id } = await client.metadata({ topics: [] })
  expect('brokers of the cluster', brokers.size >= 1 && id !== '', true)
  called('describe_cluster')
}

async function create (client, topic) {
  const configs = [{ name: 'retention.ms', value: protocol.RETENTION }]
  const [created] = await client.createTopics({ topics: [topic], partitions: protocol.PARTITIONS, replicas: 1, configs })
  expect('topic created', [created.name, created.partitions], [topic, protocol.PARTITIONS])
  called('create_topics')
  await eventually('topics listed', async () => (await client.listTopics()).includes(topic), true)
  called('list_topics')
  await eventually('partitions', () => partitions(client, topic), protocol.PARTITIONS)
  called('describe_topic')
}

async function partitions (client, topic) {
  const { topics } = await client.metadata({ topics: [topic], forceUpdate: true })
  return topics.get(topic).partitionsCount
}

async function configs (client, topic) {
  expect('retention', await retention(client, topic), protocol.RETENTION)
  called('describe_configs')
  await client.incrementalAlterConfigs({
    resources: [{
      resourceType: ConfigResourceTypes.TOPIC,
      resourceName: topic,
      configs: [{
        name: 'retention.ms',
        configOperation: IncrementalAlterConfigOperationTypes.SET,
        value: protocol.RETENTION_ALTERED
      }]
    }]
  })
  await eventually('altered retention', () => retention(client, topic), protocol.RETENTION_ALTERED)
  called('alter_configs')
}

async function retention (client, topic) {
  const [resource] = await client.describeConfigs({
    resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: ['retention.ms'] }]
  })
  return resource.configs[0].value
}

async function grow (client, topic) {
  await client.createPartitions({ topics: [{ name: topic, count: protocol.GROWN }] })
  await eventually('partitions after growth', () => partitions(client, topic), protocol.GROWN)
  called('create_partitions')
}

async function records (client, args) {
  const { topic } = args
  const producer = new Producer({ ...connection(args), serializers: stringSerializers })
  const messages = Array.from({ length: protocol.RECORDS }, (_, i) => ({ topic, value: `${i}`, partition: 0 }))
  await producer.send({ messages, acks: ProduceAcks.ALL })
  await producer.close()
  expect('latest offset', await offset(client, topic, ListOffsetTimestamps.LATEST), BigInt(protocol.RECORDS))
  called('list_offsets')
  const cut = BigInt(protocol.DELETED_BEFORE)
  const [deleted] = await client.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: cut }] }] })
  expect('low watermark', deleted.partitions[0].lowWatermark, cut)
  expect('earliest offset', await offset(client, topic, ListOffsetTimestamps.EARLIEST), cut)
  called('delete_records')
}

async function offset (client, name, timestamp) {
  const [topic] = await client.listOffsets({ topics: [{ name, partitions: [{ partitionIndex: 0, timestamp }] }] })
  return topic.partitions[0].offset
}

async function groups (client, args) {
  const group = protocol.adminGroup(args)
  const end = await consumeInGroup(args, group)
  const listed = async () => (await client.listGroups()).has(group)
  expect('group listed', await listed(), true)
  called('list_groups')
  const state = async () => (await client.describeGroups({ groups: [group] })).get(group).state
  await eventually('state of the group', async () => (await state()).toUpperCase(), 'EMPTY')
  called('describe_group')
  const [{ topics }] = await client.listConsumerGroupOffsets({
    groups: [{ groupId: group, topics: [{ name: args.topic, partitionIndexes: [0] }] }]
  })
  expect('committed', topics[0].partitions[0].committedOffset, end)
  called('list_group_offsets')
  await client.deleteGroups({ groups: [group] })
  await eventually('group listed after it was deleted', listed, false)
  called('delete_group')
}

async function consumeInGroup (args, groupId) {
  const consumer = new Consumer({ ...connection(args), groupId, ...GROUP_SETTINGS })
  const stream = await consumer.consume({ topics: [args.topic], mode: 'committed', fallbackMode: 'earliest' })
  let seen = 0
  let end
  await protocol.within('a record for the group', (async () => {
    for await (const message of stream) {
      end = message.offset + 1n
      if (++seen < protocol.CONSUMED) continue
      await message.commit()
      break
    }
  })())
  await consumer.close(true)
  return end
}

async function remove (client, topic) {
  await client.deleteTopics({ topics: [topic] })
  await eventually('topics listed after the deletion', async () => (await client.listTopics()).includes(topic), false)
  called('delete_topic')
}
