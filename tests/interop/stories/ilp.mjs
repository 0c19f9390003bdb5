// What the Interledger programs share: their settings, one a command line as JSON, and a plugin that speaks ILP over HTTP
// (RFC 35) to a server, as a peer of it: one POST a packet, whose answer is the reply.

import { Agent, request } from 'node:http'

const TIMEOUT_MS = 30_000

export const settings = JSON.parse(process.argv[2] ?? '{}')

/** Prints a result as one line of JSON; a BigInt becomes a string of digits. */
export function print(result) {
  process.stdout.write(`${JSON.stringify(result, (_, value) => (typeof value === 'bigint' ? String(value) : value))}\n`)
}

/** A plugin that posts to `url` with a bearer token. `packets` counts what was sent, `failures` what had no answer. */
export function httpPlugin({ url, token }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 32 })
  return {
    packets: 0,
    failures: 0,
    connect: async () => {},
    disconnect: async () => agent.destroy(),
    isConnected: () => true,
    registerDataHandler() {},
    deregisterDataHandler() {},
    sendData(prepare) {
      this.packets += 1
      return post(agent, url, token, prepare).catch((error) => {
        this.failures += 1
        throw error
      })
    }
  }
}

function post(agent, url, token, prepare) {
  const headers = {
    'Authorization': `Bearer ${token}`,
    'Content-Type': 'application/octet-stream',
    'Content-Length': prepare.length
  }
  return new Promise((resolve, reject) => {
    const exchange = request(url, { method: 'POST', agent, headers, timeout: TIMEOUT_MS }, async (response) => {
      const parts = []
      try {
        for await (const part of response) {
          parts.push(part)
        }
      } catch (error) {
        reject(error)
        return
      }
      if (response.statusCode === 200) {
        resolve(Buffer.concat(parts))
      } else {
        reject(new Error(`${url} answered ${response.statusCode}`))
      }
    })
    exchange.on('timeout', () => exchange.destroy(new Error(`${url} did not answer`)))
    exchange.on('error', reject)
    exchange.end(prepare)
  })
}
