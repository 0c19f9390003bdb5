// The wallet's owner says no.

import { askConsent, connect, refused, settings, step } from './app.mjs'

const client = await connect(settings.app)
const alice = await client.walletAddress.get({ url: settings.alice })
const { pending, answer } = await askConsent('ask for an outgoing-payment grant', client, alice.authServer, {
  access_token: { access: [{ type: 'outgoing-payment', actions: ['create'], identifier: alice.id }] }
})
step('return from consent', { answer })
const continuation = { url: pending.continue.uri, accessToken: pending.continue.access_token.value }
await refused('continue', client.grant.continue(continuation))
await refused('continue with a reference', client.grant.continue(continuation, { interact_ref: 'anything' }))
