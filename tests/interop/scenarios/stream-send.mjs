// Pays with ilp-protocol-stream, the older sender, which asks the server for its own address and asset first (IL-DCP,
// RFC 31), once for each line of settings: `url`, `token`, `destination`, `sharedSecret` (base64url), `amountToSend`, and
// perhaps `slippage` and `timeout` in milliseconds. Answers { amountSent, amountDelivered, error, sourceAsset, packets }.

import { createConnection } from 'ilp-protocol-stream'

import { answerEach, httpPlugin, secret } from './ilp.mjs'

await answerEach(async (settings) => {
  const plugin = httpPlugin(settings)
  const result = { amountSent: 0n, amountDelivered: 0n, error: null, sourceAsset: null }
  try {
    const connection = await createConnection({
      plugin,
      destinationAccount: settings.destination,
      sharedSecret: secret(settings.sharedSecret),
      slippage: settings.slippage ?? 0.01
    })
    connection.on('error', () => {}) // sendTotal tells it too
    const stream = connection.createStream()
    stream.on('error', () => {})
    try {
      await stream.sendTotal(settings.amountToSend, { timeout: settings.timeout ?? 20_000 })
    } catch (error) {
      result.error = error.message
    }
    result.amountSent = BigInt(stream.totalSent)
    result.amountDelivered = BigInt(connection.totalDelivered)
    result.sourceAsset = { code: connection.sourceAssetCode, scale: connection.sourceAssetScale }
    // To end it would wait for what could not be sent.
    await (result.error === null ? connection.end() : connection.destroy()).catch(() => {})
  } catch (error) {
    result.error = error.message
  }
  await plugin.disconnect()
  return { ...result, packets: plugin.packets }
})
