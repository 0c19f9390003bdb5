// What the official client sends for each of its methods, with the time standing still. The answers do not matter.

import { createInterface } from 'node:readline'

import { createAuthenticatedClient, createUnauthenticatedClient } from '@interledger/open-payments'

const Real = Date
let now = 0
globalThis.Date = class extends Real {
  constructor(...given) {
    super(...(given.length ? given : [now]))
  }
  static now() {
    return now
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const settings = JSON.parse(line)
  now = settings.now * 1000
  const { walletAddress, privateKey, kid } = settings.app
  const options = { useHttp: true, validateResponses: false }
  const client = await createAuthenticatedClient({ walletAddressUrl: walletAddress, privateKey, keyId: kid, ...options })
  const anyone = await createUnauthenticatedClient(options)
  for (const [path, ...args] of settings.calls) {
    const [resource, method] = path.split('.')
    const from = method === 'getPublic' ? anyone : client
    const name = from[resource][method] ? method : 'get'
    await from[resource][name](...args).catch(() => undefined)
  }
  process.stdout.write('{"done": true}\n')
}
