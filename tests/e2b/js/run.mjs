// Runs one suite with vitest: `node run.mjs SUITE`. NODE_PATH is where the packages are, which lie nowhere near the suites.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

// Whoever reads this reads a log.
process.env.NO_COLOR = '1'
const modules = process.env.NODE_PATH
const suite = path.resolve(process.argv[2])
const { startVitest } = await import(pathToFileURL(path.join(modules, 'vitest/dist/node.js')))

// What is imported by its name is what its package says that `import` means.
const entry = (name) => {
  const at = path.join(modules, name)
  const { exports = {}, module, main } = JSON.parse(fs.readFileSync(path.join(at, 'package.json'), 'utf8'))
  let found = exports['.'] ?? exports
  while (found && typeof found === 'object') found = found.import ?? found.default
  return path.join(at, found ?? module ?? main)
}
const alias = ['e2b', '@e2b/code-interpreter', 'vitest'].map((name) => ({
  find: new RegExp(`^${name}$`),
  replacement: entry(name),
}))

// One line for each test, in the form of TAP: what is skipped is counted, and why is said.
let number = 0
const lines = {
  onTestCaseResult(test) {
    const { state, note } = test.result()
    number += 1
    const verdict = { passed: 'ok', skipped: 'ok' }[state] ?? 'not ok'
    const skip = state === 'skipped' ? ` # SKIP ${note ?? 'no reason'}` : ''
    console.log(`${verdict} ${number} - ${test.fullName}${skip}`)
  },
}

// Nothing is asserted with it: what needs it has hung, and whoever started this ends it sooner.
const patience = 600_000
const options = {
  root: path.dirname(suite),
  include: [suite],
  reporters: ['default', lines],
  watch: false,
  cache: false,
  pool: 'forks',
  fileParallelism: false,
  allowOnly: false,
  testTimeout: patience,
  hookTimeout: patience,
}
const vite = { configFile: false, envDir: false, resolve: { alias }, css: { postcss: {} }, logLevel: 'warn' }
const vitest = await startVitest('test', [suite], options, vite)
if (number === 0) {
  console.error(`no test has run: ${suite}`)
  process.exitCode = 1
}
await vitest.close()
process.exit()
