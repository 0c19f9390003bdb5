// Prints what redocly finds in OpenAPI documents, by its recommended rules.
import { createConfig, lint } from '@redocly/openapi-core'

// Open Payments has /{path}/jwks.json beside /incoming-payments/{id}: "incoming-payments" is no wallet.
const rules = { 'no-ambiguous-paths': 'off', 'no-server-example.com': 'off', 'no-invalid-media-type-examples': 'error' }
const config = await createConfig({ extends: ['recommended'], rules })
for (const ref of process.argv.slice(2)) {
  for (const problem of await lint({ ref, config })) {
    console.log(ref, problem.severity, problem.ruleId, problem.message, problem.location[0]?.pointer)
  }
}
