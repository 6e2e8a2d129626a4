// Drives a Node client for test/clients: node driver.mjs CLIENT COMMAND key=value...
import { Failure, parseArguments } from './protocol.mjs'

// Modules with a function for each command.
const CLIENTS = {
  kafkajs: './with_kafkajs.mjs',
  platformatic: './with_platformatic.mjs',
  confluent: './with_confluent.mjs'
}

async function main ([client, command, ...words]) {
  if (!Object.hasOwn(CLIENTS, client ?? '') || !command) {
    throw new Failure(`usage: driver.mjs ${Object.keys(CLIENTS).join('|')} COMMAND key=value...`)
  }
  const args = parseArguments(command, words)
  await (await import(CLIENTS[client]))[command](args)
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof Failure)) console.error(error)
  console.error(error.message)
  process.exitCode = 1
}
// Not process.exit at once: what was printed must have been written.
process.stdout.write('', () => process.exit())
