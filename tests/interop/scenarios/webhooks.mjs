// The official library for receivers of webhooks judges the requests that it is given.

import { Webhook } from 'standardwebhooks'

import { settings, step } from './app.mjs'

for (const [name, { secret, headers, body }] of Object.entries(settings.requests)) {
  try {
    step(name, { accepted: true, event: new Webhook(secret).verify(body, headers) })
  } catch (error) {
    step(name, { accepted: false, why: error.message })
  }
}
