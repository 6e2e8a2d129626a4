// What all of the drivers share: their arguments, their lines, the records, and what admin expects.
// The protocol is told in doc.go of test/clients.
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'

// Consumers' settings that every driver uses, so that a killed member is noticed soon.
export const SESSION_MS = 6_000
export const HEARTBEAT_MS = 1_000
export const REBALANCE_MS = 10_000
// How long a fetch waits for records at most.
export const WAIT_MS = 200
// How long a driver waits for what must come.
const PATIENCE_MS = 60_000

const REQUIRED = Symbol('required')
// What each command takes: a default, or REQUIRED. The types are those of the defaults.
const COMMANDS = {
  version: {},
  produce: { bootstrap: REQUIRED, topic: REQUIRED, codec: 'none', count: 0, from: 0, idempotent: false, timestamp: 0 },
  consume: { bootstrap: REQUIRED, topic: REQUIRED, count: 0 },
  member: { bootstrap: REQUIRED, topic: REQUIRED, group: REQUIRED, instance: null, protocol: 'eager' },
  admin: { bootstrap: REQUIRED, topic: REQUIRED }
}

// Why a driver gives up.
export class Failure extends Error {}

// The values of a command's keys; a key that it does not have is an error.
export function parseArguments (command, words) {
  if (!Object.hasOwn(COMMANDS, command)) throw new Failure(`no command ${command}, only ${Object.keys(COMMANDS)}`)
  const defaults = COMMANDS[command]
  const values = { ...defaults }
  for (const word of words) {
    const [, key, text] = /^([^=]*)=(.*)$/s.exec(word) ?? []
    if (key === undefined || !Object.hasOwn(defaults, key)) {
      throw new Failure(`${command} does not take ${word}, only ${Object.keys(defaults)}`)
    }
    values[key] = parseValue(key, text, defaults[key])
  }
  const missing = Object.keys(values).filter(key => values[key] === REQUIRED)
  if (missing.length) throw new Failure(`${command} needs ${missing}`)
  return values
}

function parseValue (key, text, like) {
  if (typeof like === 'number') {
    if (!/^\d+$/.test(text)) throw new Failure(`${key} is a number, not ${text}`)
    return Number(text)
  }
  if (typeof like === 'boolean') {
    if (text !== 'true' && text !== 'false') throw new Failure(`${key} is true or false, not ${text}`)
    return text === 'true'
  }
  return text
}

export function emit (event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')
}

export function log (...words) {
  console.error(...words)
}

// Prints a record that was consumed. Headers are pairs of names and contents, both bytes or strings.
export function emitRecord (partition, offset, key, value, headers, timestamp) {
  emit('record', {
    partition,
    offset: Number(offset),
    key: text(key),
    value: text(value),
    headers: headers.map(pair => pair.map(text)),
    timestamp: Number(timestamp)
  })
}

// kafkajs's shape of headers, which Confluent's client has too: an object of contents, a list where a name comes twice.
export function headerPairs (headers) {
  return Object.entries(headers ?? {}).flatMap(([name, content]) => [content].flat().map(one => [name, one]))
}

export function emitAssigned (partitions) {
  emit('assigned', { partitions: [...partitions].sort((a, b) => a - b) })
}

export function emitCommitted (partition, offset) {
  emit('committed', { partition, offset: Number(offset) })
}

function text (content) {
  return content === null || content === undefined ? null : content.toString()
}

// The records that produce was asked for, as every driver sends them.
export function sent (args) {
  return Array.from({ length: args.count }, (_, n) => {
    const i = args.from + n
    return {
      key: `k-${i}`,
      value: `v-${i}-` + String.fromCharCode(97 + i % 26).repeat(100),
      headers: { n: `${i}`, empty: '' },
      timestamp: args.timestamp + i,
      partition: i % 3 === 0 ? 0 : undefined
    }
  })
}

// Resolves when stdin ends: the sign to leave.
export function stdinEnded () {
  return new Promise(resolve => process.stdin.on('end', resolve).resume())
}

// Waits for a promise, but not for ever.
export async function within (what, promise) {
  const giveUp = new AbortController()
  try {
    return await Promise.race([
      promise,
      sleep(PATIENCE_MS, null, { signal: giveUp.signal }).then(() => { throw new Failure(`nothing for ${PATIENCE_MS} ms: ${what}`) })
    ])
  } finally {
    giveUp.abort()
  }
}

// The group and the topic's settings that admin works with.
export const PARTITIONS = 3
export const GROWN = 5
export const RETENTION = '3600000'
export const RETENTION_ALTERED = '7200000'
export const RECORDS = 10
export const CONSUMED = 4
export const DELETED_BEFORE = 3
export const adminGroup = args => `${args.topic}-group`

// Tells of a call that did as it should.
export const called = call => emit('admin', { call })

export function expect (what, got, want) {
  if (!isDeepStrictEqual(got, want)) throw new Failure(`${what}: got ${show(got)}, want ${show(want)}`)
}

const show = value => JSON.stringify(value, (_, v) => typeof v === 'bigint' ? `${v}n` : v)

// Waits until get gives what is wanted: what a broker did may take a moment to be seen.
export async function eventually (what, get, want) {
  const deadline = Date.now() + PATIENCE_MS
  for (;;) {
    const got = await get()
    if (isDeepStrictEqual(got, want)) return
    if (Date.now() > deadline) expect(what, got, want)
    await sleep(50)
  }
}
