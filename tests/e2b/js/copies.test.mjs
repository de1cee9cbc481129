// Snapshots and forks through E2B's published SDK for Node, of a template whose sandboxes are virtual machines.
import { test } from 'vitest'
import assert from 'node:assert'
import { Sandbox } from 'e2b'

// Nothing is asserted with it: what needs it has hung. Machines may be emulated.
const requestTimeoutMs = 240_000;

test('forks and snapshots have what their source had', async () => {
  const box = await Sandbox.create('machine', { timeoutMs: 900_000, requestTimeoutMs, envs: { FROM: 'source' } });
  try {
    await box.files.write('/home/user/kept', 'kept\n');
    const [fork] = await box.fork({ timeoutMs: 600_000, requestTimeoutMs });
    assert.strictEqual((await fork.commands.run('cat kept; echo $FROM')).stdout, 'kept\nsource\n');
    await fork.kill();
    const snapshot = await box.createSnapshot({ name: 'from-node', requestTimeoutMs });
    const listed = await Sandbox.listSnapshots().nextItems();
    assert.deepStrictEqual(listed.map((one) => one.snapshotId), [snapshot.snapshotId]);
    const begun = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 600_000, requestTimeoutMs });
    assert.strictEqual(await begun.files.read('/home/user/kept'), 'kept\n');
    await begun.kill();
    assert.strictEqual(await Sandbox.deleteSnapshot(snapshot.snapshotId), true);
    assert.strictEqual(await Sandbox.deleteSnapshot(snapshot.snapshotId), false);
  } finally {
    await box.kill();
  }
});

test('what is no machine says which template is one', async () => {
  const box = await Sandbox.create({ timeoutMs: 60_000 });
  try {
    await assert.rejects(box.createSnapshot(), /templates are: machine/);
    await assert.rejects(box.fork(), /templates are: machine/);
  } finally {
    await box.kill();
  }
});
