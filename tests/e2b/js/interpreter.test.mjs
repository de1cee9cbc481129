// E2B's published code interpreter SDK for Node against a daemon that is already running.
import { afterAll, beforeAll, test } from 'vitest'
import assert from 'node:assert'
import { Sandbox } from '@e2b/code-interpreter'

let box;
beforeAll(async () => { box = await Sandbox.create({ timeoutMs: 600_000 }); });
afterAll(async () => {
  if (box) await box.kill();
});

test('a context remembers', async () => {
  await box.runCode('kept = 40');
  const ran = await box.runCode('print("said"); kept + 2');
  assert.strictEqual(ran.text, '42');
  assert.deepStrictEqual(ran.logs.stdout.join(''), 'said\n');
});

test('an exception has its name', async () => {
  const ran = await box.runCode('1 / 0');
  assert.strictEqual(ran.error.name, 'ZeroDivisionError');
});

test('lines come as they are said', async () => {
  const heard = [];
  await box.runCode('for n in range(3): print(n)', { onStdout: (said) => heard.push(said.line) });
  assert.strictEqual(heard.join(''), '0\n1\n2\n');
});

test('javascript has a context of its own', async () => {
  await box.runCode('const a = 5', { language: 'js' });
  assert.strictEqual((await box.runCode('a * 2', { language: 'js' })).text, '10');
});

test('contexts are made, listed and removed', async () => {
  const context = await box.createCodeContext({ cwd: '/tmp' });
  assert.strictEqual((await box.runCode('import os; os.getcwd()', { context })).text, '/tmp');
  assert.ok((await box.listCodeContexts()).some((one) => one.id === context.id));
  await box.removeCodeContext(context);
  await assert.rejects(box.runCode('1', { context }));
});

test('a figure is a picture and a chart', async ({ skip }) => {
  if ((await box.runCode('import matplotlib')).error) return skip("the host's Python has no matplotlib");
  const ran = await box.runCode("import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.show()");
  const [result] = ran.results;
  assert.ok(result.png);
  assert.strictEqual(result.chart.type, 'bar');
  assert.deepStrictEqual(result.chart.elements.map((bar) => [bar.label, bar.value]), [['a', 1], ['b', 2]]);
});

test('whoever stops waiting stops the code', async () => {
  await box.runCode('before = 5');
  await assert.rejects(box.runCode('import time\ntime.sleep(600)', { timeoutMs: 1000 }));
  assert.strictEqual((await box.runCode('before')).text, '5');
});
