// Volumes with E2B's published SDK for Node.
import { test } from 'vitest'
import assert from 'node:assert'
import { Sandbox, Volume } from 'e2b'

test('what a sandbox writes outlives it', async () => {
  const volume = await Volume.create(`js-${Date.now()}`);
  try {
    assert.ok((await Volume.list()).some((one) => one.volumeId === volume.volumeId && one.name === volume.name));
    await volume.makeDir('/d');
    await volume.writeFile('/d/in.txt', 'asked');
    const sandbox = await Sandbox.create({ timeoutMs: 120_000, volumeMounts: { '/mnt/v': volume } });
    try {
      const ran = await sandbox.commands.run('cat /mnt/v/d/in.txt; echo done > /mnt/v/d/out.txt');
      assert.strictEqual(ran.stdout, 'asked');
      assert.deepStrictEqual((await sandbox.getInfo()).volumeMounts, [{ name: volume.name, path: '/mnt/v' }]);
    } finally {
      await sandbox.kill();
    }
    assert.strictEqual(await volume.readFile('/d/out.txt'), 'done\n');
    assert.deepStrictEqual((await volume.list('/d')).map((one) => one.path), ['/d/in.txt', '/d/out.txt']);
    assert.strictEqual((await volume.getInfo('/d')).type, 'directory');
    await volume.remove('/d');
    assert.strictEqual(await volume.exists('/d'), false);
  } finally {
    assert.strictEqual(await Volume.destroy(volume.volumeId), true);
  }
  assert.strictEqual(await Volume.destroy(volume.volumeId), false);
});
