// An app on types that openapi-typescript has generated from the three documents of a sandbox.
import { createHeaders, loadBase64Key } from '@interledger/http-signature-utils'
import createClient, { type Middleware } from 'openapi-fetch'
import type { components as Control, paths as ControlPaths } from './control.d.ts'
import type { components, paths } from './public.d.ts'
import type { components as OperatorComponents, paths as OperatorPaths } from './operator.d.ts'

declare const process: { argv: string[] }
const line: Control['schemas']['Line'] = JSON.parse(process.argv[2]!)
const headers = { authorization: `Bearer ${line.control_token}` }
const control = createClient<ControlPaths>({ baseUrl: line.base_url, headers })
const operator = createClient<OperatorPaths>({ baseUrl: line.base_url, headers })

const signing: Middleware = {
  async onRequest({ request }) {
    const body = request.body ? await request.clone().text() : undefined
    const signed = await createHeaders({
      request: { method: request.method, url: request.url, headers: Object.fromEntries(request.headers), body },
      privateKey: loadBase64Key(btoa(line.client.private_key))!,
      keyId: line.client.kid
    })
    for (const [name, value] of Object.entries(signed)) if (value !== undefined) request.headers.set(name, value)
    return request
  }
}

/** The body of a good answer. */
function good<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error))
  return data
}

const payments = createClient<paths>({ baseUrl: line.base_url })
payments.use(signing)
const bob = line.wallets.bob!.address
const grant = good(
  await payments.POST('/', {
    body: {
      client: line.client.wallet_address,
      access_token: { access: [{ type: 'incoming-payment', actions: ['create'], identifier: bob }] }
    }
  })
)
const token: components['schemas']['AccessToken'] = grant.access_token!
const amount: components['schemas']['Amount'] = { value: '500', assetCode: 'USD', assetScale: 2 }
const bill = good(
  await payments.POST('/incoming-payments', {
    headers: { authorization: `GNAP ${token.value}` },
    body: { walletAddress: bob, incomingAmount: amount, metadata: { order: 42 } }
  })
)
good(await control.PUT('/_sandbox/wallets/{path}', { params: { path: { path: 'bob' } }, body: { balance: '7.00' } }))
const { events } = good(await control.GET('/_sandbox/events', { params: { query: { wallet: 'bob', type: 'wallet.*' } } }))
const withdrawn = events.map((event) => (event.type === 'wallet.withdrawn' ? event.data.amount.value : '')).join()
const wallet = good(await operator.GET('/admin/v1/wallets/{wallet}', { params: { path: { wallet: 'bob' } } }))

// @ts-expect-error a value is text
const wrong: components['schemas']['Amount'] = { ...amount, value: 500 }
// @ts-expect-error there is no such action
const asked: components['schemas']['QuoteAccess'] = { type: 'quote', actions: ['pay'] }
const audited: OperatorComponents['schemas']['AuditEntry']['details'] = { amount: '7.00 USD', again: true }
const granted: OperatorComponents['schemas']['Grant']['access'] = [{ type: 'quote', actions: ['create'] }]
const key: Control['schemas']['GivenKey'] = { jwk: { kty: 'OKP', crv: 'Ed25519', x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo' } }
// @ts-expect-error a key has its x
const broken: Control['schemas']['GivenKey'] = { jwk: { kty: 'OKP', crv: 'Ed25519' } }
// @ts-expect-error a quote needs a receiver
const quoted: components['schemas']['QuoteRequest'] = { walletAddress: bob, method: 'ilp' }

const fault: Control['schemas']['FaultRule'] = { fault: 'lost_answer', operation: 'create-quote' }
// @ts-expect-error there is no such fault
const none: Control['schemas']['FaultRule'] = { fault: 'lost' }
// @ts-expect-error there is no such operation
const nowhere: Control['schemas']['FaultRule'] = { fault: 'slow', operation: 'create_quote' }
const used: Control['schemas']['KeptFault']['times'] = good(await control.POST('/_sandbox/faults', { body: fault })).times

console.log(bill.incomingAmount?.value, bill.metadata?.order, wallet.balance, withdrawn, wrong.assetCode, asked.type, quoted.method)
void [audited, key, broken, granted, none, nowhere, used]
