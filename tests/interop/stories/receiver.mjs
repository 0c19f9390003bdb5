// An Interledger peer that receives with stream-receiver, and can misbehave. Settings, all optional:
//
//   version       'alpha3' or 'alpha4' of stream-receiver (alpha3)
//   address       its ILP address (test.receiver)
//   token         the bearer token that it wants to see; any will do when left out
//   port          0 takes a free one
//   asset         what the receiver keeps, { code, scale } (USD, 2); null tells senders nothing
//   tag           the payment tag in the credentials
//   maxPacket     the largest amount of a packet; tellMaxPacket: false leaves it out of the F08
//   latency       milliseconds before each answer
//   http500, t00, drop   how probable it is that a packet is answered with HTTP status 500 or T00, unprocessed, or that it
//                 is processed and its answer is lost; each from 0 to 1
//   closeAfter    how many packets with money it takes before it closes the connection (F99)
//   rate          what arrives of an amount, [numerator, denominator], rounded down ([1, 1])
//   rateAfter     { packets, rate }: another rate once so many packets with money have come
//   repeats       true: it returns Request-Id, and answers a repeated request as it did the first
//   clientAddress, clientAsset   what it tells a sender that asks by IL-DCP (test.receiver.sender, the asset)
//   seed          of the chances (1), so that a run can be repeated
//
// It prints { url, destination, sharedSecret } and then takes packets at POST url. GET /total tells { received, packets,
// requests }: the money, the packets that carried it, and all that was posted. POST /credentials makes further credentials
// and returns { destination, sharedSecret }. PATCH /settings changes settings.

import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'

import { deserializeIlpPrepare, serializeIlpReply } from 'ilp-packet'
import * as ildcp from 'ilp-protocol-ildcp'

import { print, readAll, settings, toJson } from './ilp.mjs'

const PACKAGES = { alpha3: '@interledger/stream-receiver', alpha4: 'stream-receiver-alpha4' }
const DEFAULTS = {
  version: 'alpha3',
  address: 'test.receiver',
  token: null,
  port: 0,
  asset: { code: 'USD', scale: 2 },
  tag: undefined,
  maxPacket: null,
  tellMaxPacket: true,
  latency: 0,
  http500: 0,
  t00: 0,
  drop: 0,
  closeAfter: null,
  rate: [1, 1],
  rateAfter: null,
  repeats: false,
  clientAddress: 'test.receiver.sender',
  clientAsset: null,
  seed: 1
}

const config = {}
configure({ ...DEFAULTS, ...settings })
const { StreamServer } = await import(PACKAGES[config.version])
const streams = new StreamServer({ serverSecret: randomBytes(32), serverAddress: config.address })
const chance = randomFrom(config.seed)
const answers = new Map()
const total = { received: 0n, packets: 0, requests: 0 }

const server = createServer((request, response) => {
  serve(request, response).catch((error) => {
    process.stderr.write(`${error.stack}\n`)
    response.writeHead(500).end()
  })
})
server.listen(config.port, '127.0.0.1', () => {
  print({ url: `http://127.0.0.1:${server.address().port}/ilp`, ...credentials() })
})

async function serve(request, response) {
  const body = await readAll(request)
  switch (`${request.method} ${request.url}`) {
    case 'POST /ilp':
      return takePacket(request, body, response)
    case 'GET /total':
      return tell(response, total)
    case 'POST /credentials':
      return tell(response, credentials())
    case 'PATCH /settings':
      configure(JSON.parse(body))
      return tell(response, config)
    default:
      return response.writeHead(404).end()
  }
}

async function takePacket(request, body, response) {
  if (config.token !== null && request.headers.authorization !== `Bearer ${config.token}`) {
    return response.writeHead(401).end()
  }
  total.requests += 1
  await delay(config.latency)
  if (happens(config.http500)) {
    return response.writeHead(500).end()
  }
  const id = config.repeats ? request.headers['request-id'] : undefined
  const reply = answers.get(id) ?? (await answer(body))
  if (id !== undefined) {
    answers.set(id, reply)
    response.setHeader('Request-Id', id)
  }
  if (happens(config.drop)) {
    return request.socket.destroy()
  }
  return response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(reply)
}

/** The reply to a packet, both serialized. */
async function answer(body) {
  const prepare = deserializeIlpPrepare(body)
  if (prepare.destination === 'peer.config') {
    const { code: assetCode, scale: assetScale } = config.clientAsset ?? config.asset
    const handler = async () => ({ clientAddress: config.clientAddress, assetCode, assetScale })
    return ildcp.serve({ requestPacket: body, handler, serverAddress: config.address })
  }
  if (config.maxPacket !== null && BigInt(prepare.amount) > BigInt(config.maxPacket)) {
    return reject('F08', 'the packet is too large', config.tellMaxPacket ? amounts(prepare.amount, config.maxPacket) : '')
  }
  if (happens(config.t00)) {
    return reject('T00', 'try again')
  }
  return serializeIlpReply(receive({ ...prepare, amount: String(arriving(BigInt(prepare.amount))) }))
}

function receive(prepare) {
  const money = streams.createReply(prepare)
  if (!('accept' in money)) {
    return money
  }
  if (config.closeAfter !== null && total.packets >= config.closeAfter) {
    return money.finalDecline()
  }
  total.packets += 1
  total.received += BigInt(prepare.amount)
  return money.accept()
}

function arriving(amount) {
  const changed = config.rateAfter !== null && total.packets >= config.rateAfter.packets
  const [numerator, denominator] = (changed ? config.rateAfter.rate : config.rate).map(BigInt)
  return (amount * numerator) / denominator
}

/** The data of an F08: the amount that came and the most that could, 64 bits each. */
function amounts(received, maximum) {
  const data = Buffer.alloc(16)
  data.writeBigUInt64BE(BigInt(received), 0)
  data.writeBigUInt64BE(BigInt(maximum), 8)
  return data
}

function reject(code, message, data = '') {
  return serializeIlpReply({ code, message, triggeredBy: config.address, data: Buffer.from(data) })
}

function credentials() {
  const { ilpAddress, sharedSecret } = streams.generateCredentials({
    paymentTag: config.tag,
    asset: config.asset ?? undefined
  })
  return { destination: ilpAddress, sharedSecret: sharedSecret.toString('base64url') }
}

function configure(changes) {
  const unknown = Object.keys(changes).filter((name) => !(name in DEFAULTS))
  if (unknown.length > 0) {
    throw new Error(`unknown settings: ${unknown.join(', ')}`)
  }
  Object.assign(config, changes)
}

function tell(response, value) {
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(toJson(value))
}

/** Whether something happens that is so probable. What cannot happen uses up no chance, so the seed decides the rest. */
function happens(probability) {
  return probability > 0 && chance() < probability
}

/** Numbers from 0 to 1 that look random and are the same for the same seed (xorshift, 32 bits). */
function randomFrom(seed) {
  let state = (seed * 2_654_435_761) | 0 || 1
  return () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 32
  }
}
