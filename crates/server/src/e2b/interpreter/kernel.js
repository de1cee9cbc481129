// The kernel of one JavaScript context, in the box, as the box's user: asked and answering in lines of JSON.
//
// Whatever it says is the payload's word. Nothing here guards anything.
'use strict';
const fs = require('fs');
const repl = require('repl');
const util = require('util');
const vm = require('vm');
const { PassThrough } = require('stream');
const { createInterface } = require('readline');

const say = (event) => {
  let line = Buffer.from(JSON.stringify(event) + '\n');
  while (line.length) {
    try {
      line = line.subarray(fs.writeSync(1, line));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
};

const catching = (kind) => (piece, encoding, done) => {
  const text = typeof piece === 'string' ? piece : Buffer.from(piece).toString('utf8');
  for (let at = 0; at < text.length; at += 65536) {
    say({ type: kind, text: text.slice(at, at + 65536), timestamp: new Date().toISOString() });
  }
  const called = typeof encoding === 'function' ? encoding : done;
  if (called) process.nextTick(called);
  return true;
};

const lines = createInterface({ input: process.stdin, terminal: false });
process.stdout.write = catching('stdout');
process.stderr.write = catching('stderr');

const space = repl.start({
  prompt: '',
  input: new PassThrough(),
  output: new PassThrough(),
  terminal: false,
  useGlobal: true,
});

const failed = (error) => {
  const known = error !== null && typeof error === 'object';
  const name = known && error.name ? String(error.name) : 'Error';
  const value = known && 'message' in error ? String(error.message) : String(error);
  say({ type: 'error', name, value, traceback: known && error.stack ? String(error.stack) : value });
};

const shown = (value) => {
  const event = { type: 'result', is_main_result: true, extra: {}, text: typeof value === 'string' ? value : util.inspect(value) };
  if (value !== null && typeof value === 'object') {
    try {
      event.json = JSON.parse(JSON.stringify(value));
    } catch {
      // What cannot be JSON is text alone.
    }
  }
  say(event);
};

let count = 0;
let give_up = null;
process.on('SIGINT', () => give_up && give_up(Object.assign(new Error('interrupted'), { name: 'KeyboardInterrupt' })));
process.on('uncaughtException', (error) => failed(error));
// Where the prompt has a domain, what is thrown goes there and never comes back.
if (space._domain) {
  space._domain.removeAllListeners('error');
  space._domain.on('error', (error) => (give_up ? give_up(error) : failed(error)));
}

// A prompt knows how to wait at the top of a cell; everything else is a script of its own, which an interrupt can stop.
const evaluate = (code, begun) => new Promise((resolve, reject) => {
  // Whoever hears that it has begun may interrupt it.
  give_up = reject;
  begun();
  let script;
  try {
    script = new vm.Script(code, { filename: 'cell' });
  } catch (error) {
    if (!/\bawait\b/.test(code)) throw error;
    space.eval(code + '\n', space.context, 'cell', (failure, value) => (failure ? reject(failure) : resolve(value)));
    return;
  }
  resolve(script.runInThisContext({ breakOnSigint: true, displayErrors: true }));
});

lines.on('line', async (line) => {
  const asked = JSON.parse(line);
  // Begun in another sandbox, of which this one is a copy, it hears now whose it is.
  Object.assign(process.env, asked.begin || {});
  const before = { ...process.env };
  Object.assign(process.env, asked.env_vars || {});
  count += 1;
  try {
    const value = await evaluate(asked.code, () => say({ type: 'number_of_executions', execution_count: count }));
    if (value !== undefined) shown(value);
  } catch (error) {
    failed(error && error.err instanceof Error ? error.err : error);
  }
  give_up = null;
  if (asked.env_vars) {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
  }
  // What was promised to be printed at once is printed.
  setImmediate(() => say({ type: 'end' }));
});
lines.on('close', () => process.exit(0));
say({ type: 'ready' });
