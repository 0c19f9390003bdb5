// The whole of a payment: an app that alice uses pays bob, in three ways, with alice's consent, which she refuses at first.

import { createUnauthenticatedClient } from '@interledger/open-payments'

import { askConsent, connect, grant, refused, settings, step, token } from './app.mjs'

const usd = (value) => ({ value, assetCode: 'USD', assetScale: 2 })

const client = await connect(settings.app)
const alice = await client.walletAddress.get({ url: settings.alice })
const bob = await client.walletAddress.get({ url: settings.bob })
const app = await client.walletAddress.get({ url: settings.app.walletAddress })
step('look up wallet addresses', { alice, bob, app })
step('look up keys', {
  alice: await client.walletAddress.getKeys({ url: settings.alice }),
  app: await client.walletAddress.getKeys({ url: settings.app.walletAddress })
})

const receiving = await grant(client, bob.authServer, {
  type: 'incoming-payment',
  actions: ['create', 'read', 'list', 'complete'],
  identifier: bob.id
})
step('get an incoming-payment grant', receiving)
const receiveToken = receiving.access_token.value
const atBob = { url: bob.resourceServer, accessToken: receiveToken }

const expiresAt = new Date(Date.now() + 3_600_000).toISOString()
const invoice = await client.incomingPayment.create(atBob, {
  walletAddress: bob.id,
  incomingAmount: usd('1000'),
  expiresAt,
  metadata: { description: 'Coffee \u2615', lines: [{ n: 1 }] }
})
step('create an incoming payment', { payment: invoice, expiresAt })
step('read it privately', { payment: await client.incomingPayment.get({ url: invoice.id, accessToken: receiveToken }) })
const unauthenticated = await createUnauthenticatedClient({ useHttp: true })
step('read it publicly', { payment: await unauthenticated.incomingPayment.get({ url: invoice.id }) })

const open = await client.incomingPayment.create(atBob, { walletAddress: bob.id })
const unpaid = await client.incomingPayment.create(atBob, { walletAddress: bob.id })
step('create incoming payments without an amount', { payments: [open, unpaid] })

const quoteToken = await token(client, alice.authServer, {
  type: 'quote',
  actions: ['create', 'read'],
  identifier: alice.id
})
const quote = (receiver, amounts = {}) =>
  client.quote.create(
    { url: alice.resourceServer, accessToken: quoteToken },
    { walletAddress: alice.id, receiver, method: 'ilp', ...amounts }
  )
const quotes = {
  inferred: await quote(invoice.id),
  fixedSend: await quote(open.id, { debitAmount: usd('300') }),
  fixedReceive: await quote(open.id, { receiveAmount: usd('200') })
}
step('quote it', quotes)
step('read a quote', { quote: await client.quote.get({ url: quotes.inferred.id, accessToken: quoteToken }) })

const wanted = {
  access_token: {
    access: [
      {
        type: 'outgoing-payment',
        actions: ['create', 'read', 'list'],
        identifier: alice.id,
        limits: { debitAmount: usd('2000'), interval: `R/${new Date(Date.now() - 60_000).toISOString()}/P1M` }
      }
    ]
  }
}
const denied = await askConsent('ask for a grant that is denied', client, alice.authServer, wanted, 'deny')
step('return from denial', { answer: denied.answer })
await refused('continue after denial', client.grant.continue(denied.continuation))
await refused(
  'continue after denial all the same',
  client.grant.continue(denied.continuation, { interact_ref: 'made-up' })
)

const { answer, expectedHash, continuation } = await askConsent('ask again', client, alice.authServer, wanted)
step('return from consent', { answer, expectedHash })
const sending = await client.grant.continue(continuation, { interact_ref: answer.interact_ref })
step('continue', sending)
const sendToken = sending.access_token.value
const atAlice = { url: alice.resourceServer, accessToken: sendToken }
step('read the spent amounts of an unused grant', await client.outgoingPayment.getGrantSpentAmounts(atAlice))

const pay = (quoteId) =>
  client.outgoingPayment.create(atAlice, { walletAddress: alice.id, quoteId, metadata: { order: '42' } })
const payment = await pay(quotes.inferred.id)
step('create an outgoing payment', { payment })
step('read it', { payment: await client.outgoingPayment.get({ url: payment.id, accessToken: sendToken }) })
const received = await client.incomingPayment.get({ url: invoice.id, accessToken: receiveToken })
step('see the incoming payment completed', { payment: received })

const others = [await pay(quotes.fixedSend.id), await pay(quotes.fixedReceive.id)]
step('pay twice more', { payments: others })
step('read the spent amounts', await client.outgoingPayment.getGrantSpentAmounts(atAlice))

const outgoing = (page) => client.outgoingPayment.list({ ...atAlice, walletAddress: alice.id }, page)
const incoming = (page) => client.incomingPayment.list({ ...atBob, walletAddress: bob.id }, page)
step('list outgoing payments', await walk(outgoing))
step('list incoming payments', await walk(incoming))

step('complete an incoming payment', {
  payment: await client.incomingPayment.complete({ url: open.id, accessToken: receiveToken })
})
step('read it afterwards', { payment: await client.incomingPayment.get({ url: open.id, accessToken: receiveToken }) })

/** All at once; then page by page to the end, and back again. */
async function walk(list) {
  const whole = await list()
  const first = await list({ first: 1 })
  const second = await list({ first: 1, cursor: first.pagination.endCursor })
  const rest = await list({ first: 100, cursor: second.pagination.endCursor })
  const back = await list({ last: 1, cursor: second.pagination.startCursor })
  return { whole, first, second, rest, back }
}
