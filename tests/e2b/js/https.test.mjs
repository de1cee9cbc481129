// The SDK with nothing but a domain and a key, over the daemon's door with TLS.
import { test } from 'vitest'
import assert from 'node:assert'
import dns from 'node:dns'

// Wildcard DNS, as an operator would have it.
const real = dns.lookup
dns.lookup = (host, options, done) => real(host.endsWith('sbx.test') ? '127.0.0.1' : host, options, done)

// Only now: nobody has looked up a name before.
const { Sandbox } = await import('e2b')

test('commands, files and a server inside', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000 })
  try {
    assert.equal(box.getHost(8000), `8000-${box.sandboxId}.${process.env.E2B_DOMAIN}`)
    assert.equal((await box.commands.run('echo hello')).stdout, 'hello\n')
    await box.files.write('page', 'from inside')
    await box.commands.run('python3 -m http.server 8000 --bind 127.0.0.1', { background: true })
    await box.commands.run('until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done')
    assert.equal(await (await fetch(`https://${box.getHost(8000)}/page`)).text(), 'from inside')
  } finally {
    await box.kill()
  }
  assert.equal(await box.isRunning(), false)
})
