import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { createAuthenticatedClient } from '@interledger/open-payments'

const payres = spawn('payres', ['sandbox'], { stdio: ['pipe', 'pipe', 'inherit'] })
const [line] = await once(createInterface(payres.stdout), 'line')
const { client, wallets } = JSON.parse(line)

const app = await createAuthenticatedClient({
  walletAddressUrl: client.wallet_address,
  keyId: client.kid,
  privateKey: client.private_key
})
const bob = await app.walletAddress.get({ url: wallets.bob.address })
const grant = await app.grant.request(
  { url: bob.authServer },
  { access_token: { access: [{ type: 'incoming-payment', actions: ['create'], identifier: bob.id }] } }
)
const bill = await app.incomingPayment.create(
  { url: bob.resourceServer, accessToken: grant.access_token.value },
  { walletAddress: bob.id, incomingAmount: { value: '500', assetCode: 'USD', assetScale: 2 } }
)
console.log('Bill:', bill.incomingAmount.value)
payres.stdin.end()
