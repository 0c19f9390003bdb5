// Apps without a wallet address, known by their keys alone (directed identity).

import { randomUUID } from 'node:crypto'

import { generateJwk, generateKey } from '@interledger/http-signature-utils'

import { connect, refused, settings, step } from './app.mjs'

const [first, second] = [await newApp(), await newApp()]
const bob = await first.client.walletAddress.get({ url: settings.bob })
const access = (type, ...actions) => ({ access_token: { access: [{ type, actions, identifier: bob.id }] } })

const ask = ({ client, jwk }, request) => client.grant.request({ url: bob.authServer }, request, { jwk })
const receiving = await ask(first, access('incoming-payment', 'create', 'read', 'list'))
step('get an incoming-payment grant', receiving)
const mine = receiving.access_token.value
const payment = await first.client.incomingPayment.create(at(mine), { walletAddress: bob.id })
step('create an incoming payment', { payment })
step('list', await first.client.incomingPayment.list(at(mine)))

const theirs = (await ask(second, access('incoming-payment', 'create', 'read', 'list'))).access_token.value
step('list as another app', await second.client.incomingPayment.list(at(theirs)))
await refused('read as another app', second.client.incomingPayment.get({ url: payment.id, accessToken: theirs }))
await refused('use the token of another app', second.client.incomingPayment.list(at(mine)))
await refused('ask in the name of another app', ask({ client: second.client, jwk: first.jwk }, access('quote', 'create')))

const interact = { start: ['redirect'], finish: { method: 'redirect', uri: 'http://127.0.0.1:9/', nonce: randomUUID() } }
await refused('ask for consent', ask(first, { ...access('outgoing-payment', 'create'), interact }))

function at(accessToken) {
  return { url: bob.resourceServer, accessToken, walletAddress: bob.id }
}

/** An app with a new key. The official client wants a wallet address all the same; nothing is sent of it. */
async function newApp() {
  const kid = randomUUID()
  const privateKey = generateKey()
  const client = await connect({ walletAddress: 'http://app.invalid/unused', privateKey, kid })
  return { client, jwk: generateJwk({ privateKey, keyId: kid }) }
}
