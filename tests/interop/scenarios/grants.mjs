// What becomes of grants and tokens: polling, subjects, what other apps made, rotation, revocation, cancellation.

import { setTimeout as delay } from 'node:timers/promises'

import { askConsent, connect, continuation, grant, refused, settings, step, token } from './app.mjs'

const client = await connect(settings.app)
const other = await connect(settings.other)
const bob = await client.walletAddress.get({ url: settings.bob })
const access = { type: 'incoming-payment', actions: ['create', 'list'], identifier: bob.id }
const atBob = (accessToken) => ({ url: bob.resourceServer, accessToken, walletAddress: bob.id })
const management = (answer) => ({ url: answer.access_token.manage, accessToken: answer.access_token.value })

const mine = await grant(client, bob.authServer, access)
const { id } = await client.incomingPayment.create(atBob(mine.access_token.value), { walletAddress: bob.id })
const theirs = await other.incomingPayment.create(atBob(await token(other, bob.authServer, access)), {
  walletAddress: bob.id
})
step('create a payment with each app', { mine: id, theirs: theirs.id })
step('list', await client.incomingPayment.list(atBob(mine.access_token.value)))

const rotated = await client.token.rotate(management(mine))
step('rotate', { before: mine.access_token, after: rotated.access_token })
await refused('use the old value', client.incomingPayment.list(atBob(mine.access_token.value)))
step('use the new value', await client.incomingPayment.list(atBob(rotated.access_token.value)))
await refused('rotate at the old URL', client.token.rotate(management(mine)))
await refused('revoke the token of another app', other.token.revoke(management(rotated)))
await client.token.revoke(management(rotated))
await refused('use a revoked token', client.incomingPayment.list(atBob(rotated.access_token.value)))
await refused('rotate a revoked token', client.token.rotate(management(rotated)))
await client.token.revoke(management(rotated))
step('revoke twice', {})

const doomed = await grant(client, bob.authServer, access)
await refused('cancel the grant of another app', other.grant.cancel(continuation(doomed)))
await client.grant.cancel(continuation(doomed))
await refused('use a token of a cancelled grant', client.incomingPayment.list(atBob(doomed.access_token.value)))
await refused('cancel twice', client.grant.cancel(continuation(doomed)))

const all = { type: 'incoming-payment', actions: ['list-all'], identifier: bob.id }
const subject = { sub_ids: [{ id: bob.id, format: 'uri' }] }
const asked = await askConsent('ask for all payments and a subject', client, bob.authServer, {
  access_token: { access: [all] },
  subject
})
const { interact_ref } = asked.answer
await refused('continue with another reference', client.grant.continue(asked.continuation, { interact_ref: 'x' }))
await refused('continue without a reference', client.grant.continue(asked.continuation))
await refused('continue as another app', other.grant.continue(asked.continuation, { interact_ref }))
const seeing = await client.grant.continue(asked.continuation, { interact_ref })
step('continue', seeing)
step('list all', await client.incomingPayment.list(atBob(seeing.access_token.value)))
await refused('continue twice', client.grant.continue(asked.continuation, { interact_ref }))

const polled = await client.grant.request(
  { url: bob.authServer },
  { access_token: { access: [all] }, interact: { start: ['redirect'] } }
)
await refused('poll at once', client.grant.continue(continuation(polled)))
await delay(polled.continue.wait * 1000)
const undecided = await client.grant.continue(continuation(polled))
step('poll before the decision', { ...undecided, decide: polled.interact.redirect, choice: 'approve' })
let decided = undecided
while (!decided.access_token) {
  await delay(polled.continue.wait * 1000)
  decided = await client.grant.continue(continuation(decided))
}
step('poll after the decision', decided)
