// Pays with @interledger/pay, once for each line of settings: `url` and `token` of the server that takes the packets;
// `destination` and `sharedSecret` (base64url) of the receiver; `sourceAsset` and perhaps `destinationAsset` ({ code,
// scale }), without which the receiver is asked; `amountToSend` or `amountToDeliver`; perhaps `slippage`, `prices` and
// `quoteOnly`. Answers { amountSent, amountDelivered, error, quote, packets }.

import { closeConnection, pay, setupPayment, startQuote } from '@interledger/pay'

import { answerEach, httpPlugin, secret } from './ilp.mjs'

await answerEach(async (settings) => {
  const plugin = httpPlugin(settings)
  const result = { amountSent: 0n, amountDelivered: 0n, error: null, quote: null }
  try {
    const destination = await setupPayment({
      plugin,
      destinationAddress: settings.destination,
      destinationAsset: settings.destinationAsset,
      sharedSecret: secret(settings.sharedSecret)
    })
    try {
      await send(plugin, destination, settings, result)
    } finally {
      await closeConnection(plugin, destination)
    }
  } catch (error) {
    result.error = typeof error === 'string' ? error : error.message // a PaymentError is a string
  }
  await plugin.disconnect()
  return { ...result, packets: plugin.packets }
})

async function send(plugin, destination, settings, result) {
  const { sourceAsset, amountToSend, amountToDeliver, slippage, prices } = settings
  const quote = await startQuote({
    plugin,
    destination,
    sourceAsset,
    amountToSend,
    amountToDeliver,
    slippage,
    prices
  })
  const { maxSourceAmount, minDeliveryAmount, maxPacketAmount } = quote
  result.quote = { maxSourceAmount, minDeliveryAmount, maxPacketAmount, minExchangeRate: quote.minExchangeRate.valueOf() }
  if (settings.quoteOnly) {
    return
  }
  const { amountSent, amountDelivered, error = null } = await pay({ plugin, destination, quote })
  Object.assign(result, { amountSent, amountDelivered, error })
}
