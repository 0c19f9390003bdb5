// Tells a story for each line of standard input, { story, settings }, and ends it with the step `end`.

import { createInterface } from 'node:readline'

import { step, tell } from './app.mjs'

for await (const line of createInterface({ input: process.stdin })) {
  const { story, settings } = JSON.parse(line)
  await tell(story, settings)
  step('end')
}
