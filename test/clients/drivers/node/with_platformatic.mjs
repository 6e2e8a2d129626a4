// @platformatic/kafka. Every consumer of it is a member of a group.
import { randomUUID } from 'node:crypto'
import { load } from './packages.mjs'
import * as protocol from './protocol.mjs'
import { called, eventually, expect } from './protocol.mjs'

const {
  Admin, Consumer, ConfigResourceTypes, IncrementalAlterConfigOperationTypes, ListOffsetTimestamps, ProduceAcks, Producer,
  stringSerializers
} = load('@platformatic/kafka')

const connection = args => ({ clientId: 'driver', bootstrapBrokers: args.bootstrap.split(',') })

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
  const consumer = new Consumer({
    ...connection(args),
    groupId: args.group,
    ...GROUP_SETTINGS,
    protocols: [{ name: args.protocol === 'cooperative' ? 'cooperative-sticky' : 'roundrobin', version: 1 }],
    ...(args.instance && { groupInstanceId: args.instance })
  })
  const ended = protocol.stdinEnded()
  const membership = new Membership(consumer, args)
  const stream = await consumer.consume({ topics: [args.topic], mode: 'committed', fallbackMode: 'earliest' })
  ended.then(() => stream.close())
  for await (const message of stream) {
    if (membership.expects(message)) {
      emitMessage(message)
      membership.processed(message)
    }
    const { uncommitted } = membership
    if (uncommitted >= BATCH || (uncommitted > 0 && stream.readableLength === 0)) await membership.commit(ended)
  }
  await consumer.close(true)
}

// What a member has, and how far it has come.
//
// The client (2.12.1) leaves to its user what others do themselves, with any broker: it hands out what it has buffered of
// partitions that it lost, and again what it had buffered before it joined again; and a commit that is refused in a
// rebalance it sends again after it, also for partitions that others have by then. So records are looked at, and nothing
// is committed in a rebalance.
class Membership {
  #consumer
  #topic
  #owned = new Set() // as of the last joining: until the next one its records are still worth to be processed
  #next = new Map() // by partition, of those that it has: the offset to come, and the epoch of the record before it
  #dirty = new Set() // partitions to commit
  #joining = Promise.withResolvers()
  #joined = false
  uncommitted = 0

  constructor (consumer, { topic, protocol: rebalancing }) {
    this.#consumer = consumer
    this.#topic = topic
    consumer.on('error', error => protocol.log('consumer:', error)) // as when it is closed in a rebalance
    consumer.on('consumer:heartbeat:error', ({ error }) => protocol.log('heartbeat:', error))
    consumer.on('consumer:group:rebalance', () => this.#rebalance(rebalancing === 'eager'))
    consumer.on('consumer:group:join', ({ assignments }) => {
      this.#join(assignments?.find(assignment => assignment.topic === topic)?.partitions ?? [])
    })
  }

  #rebalance (eager) {
    if (this.#joined) this.#joining = Promise.withResolvers()
    this.#joined = false
    if (eager) protocol.emitAssigned([])
  }

  #join (partitions) {
    this.#owned = new Set(partitions)
    for (const partition of this.#next.keys()) {
      if (this.#owned.has(partition)) continue
      this.#next.delete(partition)
      this.#dirty.delete(partition)
    }
    protocol.emitAssigned(partitions)
    this.#joined = true
    this.#joining.resolve()
  }

  expects ({ partition, offset }) {
    return this.#owned.has(partition) && offset >= (this.#next.get(partition)?.offset ?? 0n)
  }

  processed ({ partition, offset, leaderEpoch }) {
    this.#next.set(partition, { offset: offset + 1n, leaderEpoch })
    this.#dirty.add(partition)
    this.uncommitted++
  }

  async commit (ended) {
    await Promise.race([this.#joining.promise, ended])
    const ends = Array.from(this.#dirty, partition => ({ topic: this.#topic, partition, ...this.#next.get(partition) }))
    this.#dirty.clear()
    this.uncommitted = 0
    try {
      if (ends.length) await this.#consumer.commit({ offsets: ends })
    } catch (error) {
      protocol.log('commit:', error)
      return
    }
    for (const { partition, offset } of ends) protocol.emitCommitted(partition, offset)
  }
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
