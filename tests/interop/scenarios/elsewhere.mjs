// A payment from one server to another: alice, whose wallet is at the first, pays what bob asks for at the second, and then
// sends him something more. Every answer of both servers is validated.

import { setTimeout as delay } from 'node:timers/promises'

import { askConsent, connect, settings, step, token } from './app.mjs'

const PAYMENT_MS = 60_000

const client = await connect(settings.app)
const alice = await client.walletAddress.get({ url: settings.alice })
const bob = await client.walletAddress.get({ url: settings.bob })
step('look up wallet addresses', { alice, bob })
const money = (wallet, value) => ({ value, assetCode: wallet.assetCode, assetScale: wallet.assetScale })

const receiveToken = await token(client, bob.authServer, { type: 'incoming-payment', actions: ['create', 'read'] })
const atBob = { url: bob.resourceServer, accessToken: receiveToken }
const invoice = await client.incomingPayment.create(atBob, {
  walletAddress: bob.id,
  incomingAmount: money(bob, '2500'),
  metadata: { description: 'Invoice 42' }
})
const tip = await client.incomingPayment.create(atBob, { walletAddress: bob.id })
step('create incoming payments', { invoice, tip })

const quoteToken = await token(client, alice.authServer, { type: 'quote', actions: ['create', 'read'] })
const atAlice = { url: alice.resourceServer, accessToken: quoteToken }
const quote = (receiver, amounts = {}) =>
  client.quote.create(atAlice, { walletAddress: alice.id, receiver, method: 'ilp', ...amounts })
const quotes = {
  invoice: await quote(invoice.id),
  tip: await quote(tip.id, { debitAmount: money(alice, '1000') })
}
step('quote them', quotes)
step('read a quote', { quote: await client.quote.get({ url: quotes.tip.id, accessToken: quoteToken }) })

await pay('invoice')
await pay('tip')
step('see them received', {
  invoice: await client.incomingPayment.get({ url: invoice.id, accessToken: receiveToken }),
  tip: await client.incomingPayment.get({ url: tip.id, accessToken: receiveToken })
})

/** Pays a quote with a grant of its own, to the end: then the grant has spent what the payment has sent. */
async function pay(name) {
  const { id, debitAmount } = quotes[name]
  const { answer, continuation } = await askConsent(`ask to pay the ${name}`, client, alice.authServer, {
    access_token: {
      access: [
        {
          type: 'outgoing-payment',
          actions: ['create', 'read', 'list'],
          identifier: alice.id,
          limits: { debitAmount }
        }
      ]
    }
  })
  const grant = await client.grant.continue(continuation, { interact_ref: answer.interact_ref })
  const sending = { url: alice.resourceServer, accessToken: grant.access_token.value }
  const created = await client.outgoingPayment.create(sending, { walletAddress: alice.id, quoteId: id })
  const deadline = Date.now() + PAYMENT_MS
  let payment, spent
  do {
    await delay(50)
    spent = await client.outgoingPayment.getGrantSpentAmounts(sending)
    payment = await client.outgoingPayment.get({ url: created.id, accessToken: sending.accessToken })
    if (Date.now() > deadline) {
      throw new Error(`the payment has not ended: ${JSON.stringify(payment)}`)
    }
  } while (!payment.failed && payment.sentAmount.value !== spent.spentDebitAmount.value)
  const list = await client.outgoingPayment.list({ ...sending, walletAddress: alice.id })
  step(`pay the ${name}`, { created, payment, spent, list })
}
