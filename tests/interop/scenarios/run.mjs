// Runs a scenario for each line of standard input, { scenario, settings }, and ends it with the step `end`.

import { createInterface } from 'node:readline'

import { run, step } from './app.mjs'

for await (const line of createInterface({ input: process.stdin })) {
  const { scenario, settings } = JSON.parse(line)
  await run(scenario, settings)
  step('end')
}
