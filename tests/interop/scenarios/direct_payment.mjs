// A payment without a quote, across currencies and with a fee: carol pays in GBP what dave receives in EUR.

import { askConsent, connect, refused, settings, step, token } from './app.mjs'

const gbp = (value) => ({ value, assetCode: 'GBP', assetScale: 2 })

const client = await connect(settings.app)
const carol = await client.walletAddress.get({ url: settings.carol })
const dave = await client.walletAddress.get({ url: settings.dave })

const receiveToken = await token(client, dave.authServer, { type: 'incoming-payment', actions: ['create', 'read'] })
const atDave = { url: dave.resourceServer, accessToken: receiveToken }
const tip = await client.incomingPayment.create(atDave, { walletAddress: dave.id })
const other = await client.incomingPayment.create(atDave, { walletAddress: dave.id })

const { answer, continuation } = await askConsent('ask for an outgoing-payment grant', client, carol.authServer, {
  access_token: {
    access: [
      {
        type: 'outgoing-payment',
        actions: ['create', 'read'],
        identifier: carol.id,
        limits: { receiver: tip.id, debitAmount: gbp('2500') }
      }
    ]
  }
})
const sending = await client.grant.continue(continuation, { interact_ref: answer.interact_ref })
const sendToken = sending.access_token.value
const atCarol = { url: carol.resourceServer, accessToken: sendToken }
const pay = (incomingPayment, value) =>
  client.outgoingPayment.create(atCarol, { walletAddress: carol.id, incomingPayment, debitAmount: gbp(value) })

await refused('pay less than the fee', pay(tip.id, '10'))
const payment = await pay(tip.id, '2000')
step('pay', { payment })
step('read it', { payment: await client.outgoingPayment.get({ url: payment.id, accessToken: sendToken }) })
step('see it received', { payment: await client.incomingPayment.get({ url: tip.id, accessToken: receiveToken }) })
await refused('pay more than is left of the limit', pay(tip.id, '501'))
await refused('pay another receiver', pay(other.id, '100'))
step('pay all that is left of the limit', { payment: await pay(tip.id, '500') })
step('read the spent amounts', await client.outgoingPayment.getGrantSpentAmounts(atCarol))
