// What the Interledger programs share: settings as lines of JSON on standard input, each answered by such a line on
// standard output, and a plugin that speaks ILP over HTTP (RFC 35) to a server as a peer of it does: one POST a packet,
// whose answer is the reply.

import { Agent, request } from 'node:http'
import { createInterface } from 'node:readline'

const TIMEOUT_MS = 30_000

/** Answers each line of settings with what `run` makes of them, one after the other. */
export async function answerEach(run) {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${toJson(await run(JSON.parse(line)))}\n`)
  }
}

/** A value as JSON, in which a BigInt is a number with all its digits. */
export function toJson(value) {
  const text = JSON.stringify(value, (_, member) => (typeof member === 'bigint' ? `bigint:${member}` : member))
  return text.replace(/"bigint:(\d+)"/g, '$1')
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
