// E2B's published SDK for Node builds templates on a daemon that is already running, and makes sandboxes of them.
import { afterAll, test } from 'vitest'
import assert from 'node:assert'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { Sandbox, Template, BuildError } from 'e2b'

const name = () => `t-${Math.random().toString(36).slice(2, 12)}`;
const place = fs.mkdtempSync(path.join(os.tmpdir(), 'blastbox-templates-'));
fs.mkdirSync(path.join(place, 'app'));
fs.writeFileSync(path.join(place, 'app', 'note.txt'), 'a note\n');

afterAll(() => {
  fs.rmSync(place, { recursive: true });
});

test('a template is built and its sandboxes have what it has', async () => {
  const called = name();
  const said = [];
  const template = Template({ fileContextPath: place })
    .fromBaseImage()
    .setEnvs({ GREETING: 'good day' })
    .copy('app', '/home/user/app')
    .setWorkdir('/home/user/app')
    .runCmd('echo $GREETING; cat note.txt note.txt > twice.txt');
  await Template.build(template, called, { cpuCount: 1, memoryMB: 512, onBuildLogs: (entry) => said.push(entry.message) });
  assert.ok(said.includes('good day'));
  const box = await Sandbox.create(called, { timeoutMs: 60_000 });
  try {
    assert.strictEqual((await box.commands.run('cat twice.txt; echo $GREETING')).stdout, 'a note\na note\ngood day\n');
  } finally {
    await box.kill();
  }
  assert.ok(await Template.exists(called));
});

test('a step that fails is told', async () => {
  const template = Template().fromBaseImage().runCmd('exit 3');
  await assert.rejects(Template.build(template, name(), {}), (error) => error instanceof BuildError && /code 3/.test(error.message));
});
