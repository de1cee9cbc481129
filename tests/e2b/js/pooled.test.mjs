// E2B's published code interpreter SDK for Node against a daemon whose pool members have a Python kernel running.
import { test } from 'vitest'
import assert from 'node:assert'
import { Sandbox } from '@e2b/code-interpreter'

// Every process of the box whose words have the kernel's first line in them.
const KERNELS = "for at in /proc/[0-9]*; do if tr '\\0' ' ' <$at/cmdline 2>/dev/null | grep -q 'The kernel of one [c]ontext'; " +
  'then echo ${at#/proc/}; fi; done';

async function aMemberWaits() {
  const headers = { Authorization: `Bearer ${process.env.E2B_API_KEY}` };
  for (let tries = 0; tries < 2400; tries += 1) {
    const page = await (await fetch(`${process.env.E2B_API_URL}/metrics`, { headers })).text();
    if (Number(/^blastbox_pool_boxes (\d+)/m.exec(page)[1]) >= 2) return;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  assert.fail('no member of the pool gets ready');
}

test('a kernel runs before any code was sent, and knows the variables of its sandbox', async () => {
  await aMemberWaits();
  const box = await Sandbox.create({ timeoutMs: 120_000, envs: { OF_THE_BOX: 'there' } });
  try {
    const pid = (await box.commands.run(KERNELS)).stdout.trim();
    const ran = await box.runCode("import os; (os.getpid(), os.environ['OF_THE_BOX'])");
    assert.strictEqual(ran.text, `(${pid}, 'there')`);
  } finally {
    await box.kill();
  }
});
