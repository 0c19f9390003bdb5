// What every scenario works with: its settings, one line of JSON a step on standard output, the official client as it comes
// from npm, and the page of the app that the owner's browser returns to after consent.

import { createHash, randomUUID } from 'node:crypto'
import { createServer } from 'node:http'

import { createAuthenticatedClient, isPendingGrant, OpenPaymentsClientError } from '@interledger/open-payments'

// Generous, so that a busy machine fails no test.
const REQUEST_MS = 30_000

/** Those of the scenario that runs. */
export let settings

let runs = 0

/** Runs a scenario with these settings. */
export async function run(scenario, given) {
  settings = given
  runs += 1
  await import(`./${scenario}.mjs?${runs}`) // a module runs once, and this is another each time
}

/** Tells the test what happened. A step with `decide` sends the wallet's owner to that URL, to make that `choice`. */
export function step(name, facts) {
  process.stdout.write(`${JSON.stringify({ step: name, ...facts })}\n`)
}

/** A step of which only the refusal is of interest: what the client makes of it. Anything but a refusal is a fault. */
export async function refused(name, answer) {
  const result = await answer.catch((error) => error)
  if (!(result instanceof OpenPaymentsClientError)) {
    throw new Error(`${name} was not refused: ${result?.stack ?? JSON.stringify(result)}`)
  }
  const { status, code, description, details, validationErrors } = result
  step(name, { status, code, description, details, validationErrors })
}

const clients = new Map()

/**
 * The official client of an app. By default it validates every response: it compiles the schemas of all documents, which
 * takes longer than most scenarios, so all scenarios of an app have the same, and one that is only refused need not.
 */
export function connect({ walletAddress, privateKey, kid }, validateResponses = true) {
  const app = JSON.stringify([walletAddress, privateKey, kid])
  if (!clients.has(app)) {
    clients.set(
      app,
      createAuthenticatedClient({
        walletAddressUrl: walletAddress,
        privateKey,
        keyId: kid,
        useHttp: true,
        requestTimeoutMs: REQUEST_MS,
        validateResponses
      })
    )
  }
  return clients.get(app)
}

/** Asks for access that is given at once, and returns the token's value. */
export async function token(client, url, ...access) {
  return (await grant(client, url, ...access)).access_token.value
}

/** Asks for access that is given at once. */
export async function grant(client, url, ...access) {
  const answer = await client.grant.request({ url }, { access_token: { access } })
  if (isPendingGrant(answer)) {
    throw new Error(`consent was asked for ${JSON.stringify(access)}`)
  }
  return answer
}

/**
 * Asks for what only the wallet's owner can give, sends the owner to decide, and waits for the return. `answer` is what
 * came with it, `expectedHash` what its hash must be (RFC 9635 section 4.2.3), `continuation` where to go on.
 */
export async function askConsent(name, client, url, request, choice = 'approve') {
  const page = await openFinishPage()
  const nonce = randomUUID()
  const pending = await client.grant.request(
    { url },
    { ...request, interact: { start: ['redirect'], finish: { method: 'redirect', uri: page.uri, nonce } } }
  )
  if (!isPendingGrant(pending)) {
    throw new Error(`${name}: no consent was asked`)
  }
  step(name, { ...pending, decide: pending.interact.redirect, choice })
  const answer = await page.visited
  const parts = [nonce, pending.interact.finish, answer.interact_ref, url]
  const expectedHash = createHash('sha256').update(parts.join('\n')).digest('base64')
  return { answer, expectedHash, continuation: continuation(pending) }
}

/** Where the client continues or cancels a grant. */
export function continuation({ continue: { uri, access_token: token } }) {
  return { url: uri, accessToken: token.value }
}

/** A page of the app, with a query of its own, for one visit. `visited` is the query of that visit. */
async function openFinishPage() {
  let arrive
  const visited = new Promise((resolve) => (arrive = resolve))
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://app.invalid')
    response.setHeader('Connection', 'close')
    if (pathname !== '/finish') {
      response.writeHead(404).end()
      return
    }
    response.setHeader('Content-Type', 'text/html; charset=utf-8')
    response.end('<!doctype html><title>Back in the app</title><h1>Back in the app</h1>')
    arrive(Object.fromEntries(searchParams))
    server.close()
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { uri: `http://127.0.0.1:${server.address().port}/finish?order=42`, visited }
}
