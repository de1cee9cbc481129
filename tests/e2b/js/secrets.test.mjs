// Secrets with E2B's published SDK for Node. BLASTBOX_SECRET_HOST is a host that says back over TLS what it was asked.
import { test } from 'vitest'
import assert from 'node:assert'
import { Sandbox, Secret, SecretError, SecretNotFoundError } from 'e2b'

const HOST = process.env.BLASTBOX_SECRET_HOST;
const VALUE = 'sk-value-of-the-owner-in-js';

test('a secret reaches its host and never the sandbox', async () => {
  const name = `js-${Date.now()}`;
  const made = await Secret.create(name, 'sk-an-older-value', { metadata: { team: 'one' } });
  try {
    assert.strictEqual(made.version, 1);
    assert.deepStrictEqual(made.metadata, { team: 'one' });
    await assert.rejects(() => Secret.create(name.toUpperCase(), VALUE), SecretError);
    const paginator = Secret.list({ limit: 1 });
    assert.deepStrictEqual((await paginator.nextItems()).map((one) => one.secretId), [made.secretId]);
    assert.strictEqual(paginator.hasNext, false);
    assert.strictEqual((await Secret.update(made.secretId, VALUE)).version, 2);
    assert.strictEqual((await Secret.getInfo(name)).version, 2);
    const headers = { Authorization: `Bearer ${Secret.fill(name)}` };
    const network = { allowOut: [HOST], rules: { [HOST]: [{ transform: { headers } }] } };
    const sandbox = await Sandbox.create({ timeoutMs: 120_000, network });
    try {
      const code = `import urllib.request; print(urllib.request.urlopen("https://${HOST}/js", timeout=20).read().decode())`;
      const seen = (await sandbox.commands.run(`python3 -c '${code}'`)).stdout;
      assert.ok(seen.includes('*'.repeat(VALUE.length)) && !seen.includes(VALUE), seen);
    } finally {
      await sandbox.kill();
    }
  } finally {
    assert.strictEqual(await Secret.destroy(name), true);
  }
  assert.strictEqual(await Secret.exists(name), false);
  await assert.rejects(() => Secret.getInfo(name), SecretNotFoundError);
});
