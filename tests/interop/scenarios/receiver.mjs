// Interledger peers that receive with stream-receiver, and can misbehave. Each line of standard input opens one; its
// settings, all optional:
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
// For each it prints { url, destination, sharedSecret } and then takes packets at POST url. Beside that, GET total tells
// { received, packets, requests }: the money, the packets that carried it, and all that was posted. POST credentials makes
// further credentials and returns { destination, sharedSecret }. PATCH settings changes settings.

import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'

import { deserializeIlpPrepare, serializeIlpReply } from 'ilp-packet'
import * as ildcp from 'ilp-protocol-ildcp'

import { answerEach, readAll, toJson } from './ilp.mjs'

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

class Receiver {
  answers = new Map()
  total = { received: 0n, packets: 0, requests: 0 }

  constructor(settings, { StreamServer }) {
    this.config = { ...DEFAULTS, ...settings }
    this.streams = new StreamServer({ serverSecret: randomBytes(32), serverAddress: this.config.address })
    this.chance = randomFrom(this.config.seed)
  }

  /** Listens, and returns the URL that it takes packets at. */
  async open() {
    const server = createServer((request, response) => {
      this.serve(request, response).catch((error) => {
        process.stderr.write(`${error.stack}\n`)
        response.writeHead(500).end()
      })
    })
    await new Promise((resolve) => server.listen(this.config.port, '127.0.0.1', resolve))
    return `http://127.0.0.1:${server.address().port}/ilp`
  }

  async serve(request, response) {
    const body = await readAll(request)
    switch (`${request.method} ${request.url}`) {
      case 'POST /ilp':
        return this.takePacket(request, body, response)
      case 'GET /total':
        return tell(response, this.total)
      case 'POST /credentials':
        return tell(response, this.credentials())
      case 'PATCH /settings':
        Object.assign(this.config, known(JSON.parse(body)))
        return tell(response, this.config)
      default:
        return response.writeHead(404).end()
    }
  }

  async takePacket(request, body, response) {
    const { token, latency, http500, repeats, drop } = this.config
    if (token !== null && request.headers.authorization !== `Bearer ${token}`) {
      return response.writeHead(401).end()
    }
    this.total.requests += 1
    await delay(latency)
    if (this.happens(http500)) {
      return response.writeHead(500).end()
    }
    const id = repeats ? request.headers['request-id'] : undefined
    const reply = this.answers.get(id) ?? (await this.answer(body))
    if (id !== undefined) {
      this.answers.set(id, reply)
      response.setHeader('Request-Id', id)
    }
    if (this.happens(drop)) {
      return request.socket.destroy()
    }
    return response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(reply)
  }

  /** The reply to a packet, both serialized. */
  async answer(body) {
    const { asset, address, clientAddress, clientAsset, maxPacket, tellMaxPacket, t00 } = this.config
    const prepare = deserializeIlpPrepare(body)
    if (prepare.destination === 'peer.config') {
      const { code: assetCode, scale: assetScale } = clientAsset ?? asset
      const handler = async () => ({ clientAddress, assetCode, assetScale })
      return ildcp.serve({ requestPacket: body, handler, serverAddress: address })
    }
    if (maxPacket !== null && BigInt(prepare.amount) > BigInt(maxPacket)) {
      return this.reject('F08', 'the packet is too large', tellMaxPacket ? amounts(prepare.amount, maxPacket) : '')
    }
    if (this.happens(t00)) {
      return this.reject('T00', 'try again')
    }
    return serializeIlpReply(this.receive({ ...prepare, amount: String(this.arriving(BigInt(prepare.amount))) }))
  }

  receive(prepare) {
    const money = this.streams.createReply(prepare)
    if (!('accept' in money)) {
      return money
    }
    if (this.config.closeAfter !== null && this.total.packets >= this.config.closeAfter) {
      return money.finalDecline()
    }
    this.total.packets += 1
    this.total.received += BigInt(prepare.amount)
    return money.accept()
  }

  arriving(amount) {
    const { rate, rateAfter } = this.config
    const changed = rateAfter !== null && this.total.packets >= rateAfter.packets
    const [numerator, denominator] = (changed ? rateAfter.rate : rate).map(BigInt)
    return (amount * numerator) / denominator
  }

  reject(code, message, data = '') {
    return serializeIlpReply({ code, message, triggeredBy: this.config.address, data: Buffer.from(data) })
  }

  credentials() {
    const { ilpAddress, sharedSecret } = this.streams.generateCredentials({
      paymentTag: this.config.tag,
      asset: this.config.asset ?? undefined
    })
    return { destination: ilpAddress, sharedSecret: sharedSecret.toString('base64url') }
  }

  /** Whether something happens that is so probable. What cannot happen uses up no chance, so the seed decides the rest. */
  happens(probability) {
    return probability > 0 && this.chance() < probability
  }
}

await answerEach(async (settings) => {
  const receiver = new Receiver(known(settings), await import(PACKAGES[settings.version ?? DEFAULTS.version]))
  return { url: await receiver.open(), ...receiver.credentials() }
})

/** The settings, all of which there are. */
function known(settings) {
  const unknown = Object.keys(settings).filter((name) => !(name in DEFAULTS))
  if (unknown.length > 0) {
    throw new Error(`unknown settings: ${unknown.join(', ')}`)
  }
  return settings
}

/** The data of an F08: the amount that came and the most that could, 64 bits each. */
function amounts(received, maximum) {
  const data = Buffer.alloc(16)
  data.writeBigUInt64BE(BigInt(received), 0)
  data.writeBigUInt64BE(BigInt(maximum), 8)
  return data
}

function tell(response, value) {
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(toJson(value))
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
