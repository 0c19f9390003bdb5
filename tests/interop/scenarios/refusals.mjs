// Everything that an app can get wrong with the official client, and what the client makes of the refusal.

import { generateKey } from '@interledger/http-signature-utils'

import { askConsent, connect, refused, settings, token } from './app.mjs'

const usd = (value) => ({ value, assetCode: 'USD', assetScale: 2 })
const eur = (value) => ({ value, assetCode: 'EUR', assetScale: 2 })
const { kid, walletAddress } = settings.app

const client = await connect(settings.app)
const other = await connect(settings.other)
const impostor = await connect({ walletAddress, kid, privateKey: generateKey() }, false)
const keyless = await connect({ walletAddress, kid: 'no-such-key', privateKey: generateKey() }, false)
const alice = await client.walletAddress.get({ url: settings.alice })
const bob = await client.walletAddress.get({ url: settings.bob })
const server = alice.resourceServer
const nowhere = `${server}/incoming-payments/01890000-0000-7000-8000-000000000000`

// Wallet addresses
await refused('look up a wallet address that is none', client.walletAddress.get({ url: `${server}/nobody` }))
await refused('look up the keys of nobody', client.walletAddress.getKeys({ url: `${server}/nobody` }))

// Grants
const incomingAccess = { type: 'incoming-payment', actions: ['create', 'read'], identifier: bob.id }
const outgoingAccess = { type: 'outgoing-payment', actions: ['create', 'read'], identifier: alice.id }
const interact = { start: ['redirect'] }
const ask = (access, more = {}, by = client) =>
  by.grant.request({ url: alice.authServer }, { access_token: { access: [access] }, ...more })
const limit = (limits) => ask({ ...outgoingAccess, limits }, { interact })
await refused('sign with the wrong key', ask(incomingAccess, {}, impostor))
await refused('sign with a key that is not published', ask(incomingAccess, {}, keyless))
await refused('ask for a wallet address that is none', ask({ ...incomingAccess, identifier: `${server}/nobody` }))
await refused('ask for an action that is none', ask({ ...incomingAccess, actions: ['burn'] }))
await refused('ask to spend without saying how to interact', ask(outgoingAccess))
await refused('ask to spend in another asset', limit({ debitAmount: eur('100') }))
await refused('ask to spend in windows of no length', limit({ interval: 'R/2025-01-01T00:00:00Z/PT0S' }))

// Tokens and access
const incomingToken = await token(client, bob.authServer, incomingAccess)
const atBob = { url: server, accessToken: incomingToken }
const create = (body, at = atBob, by = client) => by.incomingPayment.create(at, { walletAddress: bob.id, ...body })
const list = (page) => client.incomingPayment.list({ ...atBob, walletAddress: bob.id }, page)
const payment = await create({ incomingAmount: usd('1000') })
const open = await create({})
await refused('use a token that is none', create({}, { ...atBob, accessToken: 'nonsense' }))
await refused('use the token of another app', create({}, atBob, other))
await refused('list without access', list())
await refused('complete without access', client.incomingPayment.complete({ ...atBob, url: payment.id }))
await refused('create for another wallet address', create({ walletAddress: alice.id }))

// Incoming payments
await refused('create in another asset', create({ incomingAmount: eur('1000') }))
await refused('create with an amount of nothing', create({ incomingAmount: usd('0') }))
await refused('create with an amount that is none', create({ incomingAmount: usd('-1') }))
await refused('create with an expiry in the past', create({ expiresAt: '2020-01-01T00:00:00Z' }))
await refused('create with an unknown member', create({ note: 'hello' }))
await refused('read what does not exist', client.incomingPayment.get({ ...atBob, url: nowhere }))
await refused('read publicly what does not exist', client.incomingPayment.getPublic({ url: nowhere }))
const otherToken = await token(other, bob.authServer, incomingAccess)
await refused('read the payment of another app', other.incomingPayment.get({ url: payment.id, accessToken: otherToken }))
const listToken = await token(client, bob.authServer, { ...incomingAccess, actions: ['list'] })
const page = (query) => client.incomingPayment.list({ url: server, accessToken: listToken, walletAddress: bob.id }, query)
await refused('list forward and backward at once', page({ first: 1, last: 1, cursor: payment.id.split('/').pop() }))
await refused('list backward from nowhere', page({ last: 1 }))
await refused('list more than a page holds', page({ first: 101 }))
await refused('list from a cursor that is none', page({ first: 1, cursor: 'yesterday' }))

// Quotes
const quoteToken = await token(client, alice.authServer, { type: 'quote', actions: ['create'], identifier: alice.id })
const quote = (receiver, amounts = {}, accessToken = quoteToken) =>
  client.quote.create({ url: server, accessToken }, { walletAddress: alice.id, receiver, method: 'ilp', ...amounts })
await refused('quote without access', quote(payment.id, {}, incomingToken))
await refused('quote for a receiver that does not exist', quote(nowhere))
await refused('quote both amounts', quote(open.id, { debitAmount: usd('1'), receiveAmount: usd('1') }))
await refused('quote with nothing to infer the amount from', quote(open.id))
await refused('quote more than the receiver takes', quote(payment.id, { debitAmount: usd('1001') }))
await refused('quote in another asset', quote(open.id, { debitAmount: eur('1') }))

// Outgoing payments
const { answer, continuation } = await askConsent('ask to spend', client, alice.authServer, {
  access_token: { access: [{ ...outgoingAccess, limits: { debitAmount: usd('9000') } }] }
})
const { access_token: spending } = await client.grant.continue(continuation, { interact_ref: answer.interact_ref })
const pay = (body, accessToken = spending.value) =>
  client.outgoingPayment.create({ url: server, accessToken }, { walletAddress: alice.id, ...body })
const direct = (value) => ({ incomingPayment: open.id, debitAmount: usd(value) })
const quoted = await quote(open.id, { debitAmount: usd('100') })
await pay({ quoteId: quoted.id })
await refused('pay without access', pay(direct('100'), incomingToken))
await refused('pay with a quote twice', pay({ quoteId: quoted.id }))
await refused('pay with a quote that does not exist', pay({ quoteId: `${server}/quotes/nothing` }))
await refused('pay with a quote and an amount', pay({ quoteId: quoted.id, ...direct('100') }))
await refused('pay with neither', pay({}))
await refused('pay more than the grant allows', pay(direct('8901')))
await refused('pay more than the wallet has', pay(direct('5000')))
await refused('read a payment that does not exist', client.outgoingPayment.get({
  url: `${server}/outgoing-payments/nothing`,
  accessToken: spending.value
}))
await refused('list payments without access', client.outgoingPayment.list({
  url: server,
  accessToken: spending.value,
  walletAddress: alice.id
}))
