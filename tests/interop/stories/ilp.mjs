// What the Interledger programs share: settings as JSON on the command line, results as lines of JSON, and a plugin that
// speaks ILP over HTTP (RFC 35) to a server as a peer of it does: one POST a packet, whose answer is the reply.

import { Agent, request } from 'node:http'

const TIMEOUT_MS = 30_000

export const settings = JSON.parse(process.argv[2] ?? '{}')

/** A value as JSON, in which a BigInt is a number with all its digits. */
export function toJson(value) {
  const text = JSON.stringify(value, (_, member) => (typeof member === 'bigint' ? `bigint:${member}` : member))
  return text.replace(/"bigint:(\d+)"/g, '$1')
}

/** Prints a result as one line. */
export function print(result) {
  process.stdout.write(`${toJson(result)}\n`)
}

/** The shared secret that incoming payments carry as base64url. */
export function secret(text) {
  return Buffer.from(text, 'base64url')
}

/** A plugin that posts packets to `url` with a bearer token, and counts them. */
export function httpPlugin({ url, token }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 32 })
  return {
    packets: 0,
    connect: async () => {},
    disconnect: async () => agent.destroy(),
    isConnected: () => true,
    registerDataHandler() {},
    deregisterDataHandler() {},
    sendData(prepare) {
      this.packets += 1
      return post(agent, url, token, prepare)
    }
  }
}

function post(agent, url, token, prepare) {
  const headers = {
    Authorization: `Bearer ${token}`,
    'Content-Type': 'application/octet-stream',
    'Content-Length': prepare.length
  }
  return new Promise((resolve, reject) => {
    const exchange = request(url, { method: 'POST', agent, headers, timeout: TIMEOUT_MS }, (response) => {
      readAll(response).then((body) => {
        if (response.statusCode === 200) {
          resolve(body)
        } else {
          reject(new Error(`${url} answered ${response.statusCode}`))
        }
      }, reject)
    })
    exchange.on('timeout', () => exchange.destroy(new Error(`${url} did not answer`)))
    exchange.on('error', reject)
    exchange.end(prepare)
  })
}

/** All bytes of a stream. */
export async function readAll(stream) {
  const parts = []
  for await (const part of stream) {
    parts.push(part)
  }
  return Buffer.concat(parts)
}
