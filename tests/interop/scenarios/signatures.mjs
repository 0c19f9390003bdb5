// The official signing library judges the requests that it is given, and signs the same requests itself.

import { createPrivateKey } from 'node:crypto'

import {
  createHeaders,
  getKeyId,
  validateSignature,
  validateSignatureHeaders
} from '@interledger/http-signature-utils'

import { settings, step } from './app.mjs'

const { jwk, requests } = settings
const privateKey = createPrivateKey(settings.privateKey)

for (const [name, request] of Object.entries(requests)) {
  const { signed, plain } = request
  step(name, {
    accepted: validateSignatureHeaders(signed) && (await validateSignature(jwk, signed)),
    acceptedWithAnotherMethod: await validateSignature(jwk, { ...signed, method: 'PATCH' }),
    acceptedAtAnotherUrl: await validateSignature(jwk, { ...signed, url: `${signed.url}x` }),
    keyId: getKeyId(signed.headers['signature-input']),
    headers: { ...plain.headers, ...(await createHeaders({ request: plain, privateKey, keyId: jwk.kid })) }
  })
}
