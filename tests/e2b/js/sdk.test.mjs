// E2B's published SDK for JavaScript against a daemon that is already running: E2B_API_URL, E2B_SANDBOX_URL and
// E2B_API_KEY say where, NODE_PATH where the packages are. Run with `node run.mjs SUITE`.
import http from 'node:http'
import { afterAll, beforeAll, test } from 'vitest'
import assert from 'node:assert/strict'
import {
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  FilesystemEventType,
  FileType,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  SandboxError,
  SandboxNotFoundError,
  TimeoutError,
} from 'e2b'

// Nothing is asserted with it: what needs it has hung.
const PATIENCE = 60_000
const until = async (found) => {
  const begun = Date.now()
  while (Date.now() - begun < PATIENCE) {
    const answer = await found()
    if (answer) return answer
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`it never came: ${found}`)
}

let box
beforeAll(async () => {
  box = await Sandbox.create({ timeoutMs: 600_000, envs: { MARK: 'js' } })
})
afterAll(async () => {
  await box.kill()
})

test('a sandbox is made, shown, listed and killed', async () => {
  const metadata = { suite: `js-${process.pid}-${Date.now()}`, 'odd & =': 'välue %' }
  const own = await Sandbox.create({ timeoutMs: 600_000, metadata })
  const info = await own.getInfo()
  assert.equal(info.sandboxId, own.sandboxId)
  assert.deepEqual(info.metadata, metadata)
  assert.equal(info.state, 'running')
  const listed = await Sandbox.list({ query: { metadata } }).nextItems()
  assert.deepEqual(listed.map((one) => one.sandboxId), [own.sandboxId])
  const paused = await Sandbox.list({ query: { metadata, state: ['paused'] } }).nextItems()
  assert.deepEqual(paused, [])
  assert.equal(await own.isRunning(), true)
  assert.equal(await own.kill(), true)
  assert.equal(await own.kill(), false)
  assert.equal(await own.isRunning(), false)
  await assert.rejects(Sandbox.getInfo(own.sandboxId), SandboxNotFoundError)
})

test('a life is set, and connecting never shortens it', async () => {
  await box.setTimeout(1_200_000)
  const end = (await box.getInfo()).endAt.getTime()
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 60_000 })
  assert.equal((await again.getInfo()).endAt.getTime(), end)
  assert.equal((await again.commands.run('echo same')).stdout, 'same\n')
})

test('a paused sandbox goes on where it was', async ({ skip }) => {
  const own = await Sandbox.create({ timeoutMs: 600_000 })
  try {
    await own.files.write('kept.txt', 'kept')
    try {
      assert.equal(await own.pause(), true)
    } catch (error) {
      if (String(error).includes('could not be paused')) return skip('this host freezes no box')
      throw error
    }
    assert.equal(await own.isRunning(), false)
    const back = await Sandbox.connect(own.sandboxId, { timeoutMs: 600_000 })
    assert.equal(await back.files.read('kept.txt'), 'kept')
  } finally {
    await own.kill()
  }
})

test('what is refused says why', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_none' }), AuthenticationError)
  await assert.rejects(Sandbox.create('no-such'), /template 'no-such' not found; known templates: .*base/)
  await assert.rejects(Sandbox.create({ allowInternetAccess: true }), /allow_internet_access: true is refused/)
  assert.equal(await Sandbox.kill('abc'), false)
  await assert.rejects(Sandbox.connect('abc'), SandboxNotFoundError)
})

test('commands', async () => {
  const heard = []
  const done = await box.commands.run('echo $MARK; echo err >&2', { onStdout: (text) => heard.push(text) })
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['js\n', 'err\n', 0])
  assert.equal(heard.join(''), 'js\n')
  await assert.rejects(box.commands.run('exit 5'), (error) => error instanceof CommandExitError && error.exitCode === 5)
  await assert.rejects(box.commands.run('pwd', { cwd: '/no/such' }), InvalidArgumentError)
  await assert.rejects(box.commands.run('id', { user: 'who' }), AuthenticationError)
  await assert.rejects(box.commands.run('sleep 1000', { timeoutMs: 1000 }), TimeoutError)
  await assert.rejects(box.commands.run('echo ' + 'x'.repeat(1_000_000)), InvalidArgumentError)
})

test('commands in the background: input, list, connect, kill', async () => {
  const cat = await box.commands.run('cat', { background: true, stdin: true })
  await box.commands.sendStdin(cat.pid, 'in\n')
  const listed = await box.commands.list()
  assert.ok(listed.some((process) => process.pid === cat.pid && process.cmd === '/bin/bash'))
  await box.commands.closeStdin(cat.pid)
  assert.equal((await cat.wait()).stdout, 'in\n')
  const sleeper = await box.commands.run('sleep 1000', { background: true })
  const joined = await box.commands.connect(sleeper.pid)
  assert.equal(await box.commands.kill(sleeper.pid), true)
  await assert.rejects(sleeper.wait(), CommandExitError)
  await assert.rejects(joined.wait(), CommandExitError)
  assert.equal(await box.commands.kill(999_999), false)
  await assert.rejects(box.commands.connect(999_999), NotFoundError)
})

test('files', async () => {
  const info = await box.files.write('dir/file é.txt', 'hello')
  assert.equal(info.path, '/home/user/dir/file é.txt')
  assert.equal(await box.files.read('dir/file é.txt'), 'hello')
  assert.equal(await box.files.read('dir/file é.txt', { gzip: true }), 'hello')
  const bytes = new Uint8Array(300_000).map((_, at) => at % 251)
  await box.files.write('/tmp/raw.bin', bytes.buffer)
  assert.deepEqual(await box.files.read('/tmp/raw.bin', { format: 'bytes' }), bytes)
  await box.files.write([
    { path: 'dir/a', data: 'A' },
    { path: 'dir/b', data: 'B' },
  ])
  const listed = await box.files.list('dir')
  assert.deepEqual(listed.map((entry) => entry.name), ['a', 'b', 'file é.txt'])
  assert.equal(listed[0].type, FileType.FILE)
  assert.equal(await box.files.makeDir('dir/sub'), true)
  assert.equal(await box.files.makeDir('dir/sub'), false)
  assert.equal((await box.files.rename('dir/a', 'dir/sub/c')).path, '/home/user/dir/sub/c')
  assert.equal(await box.files.exists('dir/a'), false)
  await assert.rejects(box.files.read('dir/a'), FileNotFoundError)
  await assert.rejects(box.files.write('/tmp', 'x'), InvalidArgumentError)
  await box.files.remove('dir')
  assert.equal(await box.files.exists('dir'), false)
})

test('a watcher tells what happens', async () => {
  await box.files.makeDir('watched/sub')
  const seen = []
  const watcher = await box.files.watchDir('watched', (event) => void seen.push(event), { recursive: true })
  await box.files.write('watched/sub/new.txt', 'x')
  await until(() => seen.some((event) => event.type === FilesystemEventType.CREATE && event.name === 'sub/new.txt'))
  await box.files.remove('watched/sub/new.txt')
  await until(() => seen.some((event) => event.type === FilesystemEventType.REMOVE && event.name === 'sub/new.txt'))
  await watcher.stop()
  await assert.rejects(box.files.watchDir('watched/none', () => {}), FileNotFoundError)
})

test('a terminal', async () => {
  let text = ''
  const pty = await box.pty.create({ cols: 80, rows: 24, onData: (data) => void (text += Buffer.from(data)) })
  // Before its prompt bash reads the size and writes it back: whoever came in between would lose his.
  await until(() => text.includes('$ '))
  await box.pty.resize(pty.pid, { cols: 111, rows: 33 })
  await box.pty.sendInput(pty.pid, Buffer.from('stty size; exit\n'))
  await pty.wait()
  assert.match(text, /33 111/)
})

test('signed addresses', async () => {
  await box.files.write('signed.txt', 'secret')
  const answer = await fetch(await box.downloadUrl('signed.txt', { useSignatureExpiration: 600 }))
  assert.equal(await answer.text(), 'secret')
  const form = new FormData()
  form.append('file', new Blob(['from outside']), 'ignored.txt')
  const uploaded = await fetch(await box.uploadUrl('up.txt'), { method: 'POST', body: form })
  assert.equal(uploaded.status, 200)
  assert.equal(await box.files.read('up.txt'), 'from outside')
})

test('a server inside is reached by its host, and hears the one that its owner names', async () => {
  const network = { allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}', httpsPorts: [8443] }
  const own = await Sandbox.create({ timeoutMs: 600_000, network })
  try {
    const { network: shown } = await own.getInfo()
    assert.equal(shown.maskRequestHost, network.maskRequestHost)
    assert.deepEqual(shown.httpsPorts, network.httpsPorts)
    const says =
      'import http.server\n' +
      'class Says(http.server.BaseHTTPRequestHandler):\n' +
      '    def do_GET(self):\n' +
      '        self.send_response(200)\n        self.end_headers()\n' +
      '        self.wfile.write(self.headers["Host"].encode())\n' +
      'http.server.HTTPServer(("127.0.0.1", 8000), Says).serve_forever()\n'
    await own.files.write('says.py', says)
    await own.commands.run('python3 says.py', { background: true })
    const at = new URL(process.env.E2B_SANDBOX_URL)
    const ask = (headers) =>
      new Promise((resolve, reject) => {
        const options = { host: at.hostname, port: at.port, headers: { Host: own.getHost(8000), ...headers } }
        const asked = http.get(options, async (answer) => {
          const pieces = []
          for await (const piece of answer) pieces.push(piece)
          resolve([answer.statusCode, Buffer.concat(pieces).toString()])
        })
        asked.on('error', reject)
      })
    const token = { 'E2B-Traffic-Access-Token': own.trafficAccessToken }
    const heard = await until(async () => {
      const said = await ask(token)
      return said[0] === 200 && said
    })
    assert.deepEqual(heard, [200, 'localhost:8000'])
    assert.equal((await ask({}))[0], 403)
  } finally {
    await own.kill()
  }
})

test('a sandbox that is killed cuts its streams off', async () => {
  const own = await Sandbox.create({ timeoutMs: 600_000 })
  const handle = await own.commands.run('sleep 1000', { background: true })
  const waited = assert.rejects(handle.wait(), (error) => error instanceof SandboxError)
  await own.kill()
  await waited
  await assert.rejects(own.commands.run('true'), (error) => error instanceof SandboxError)
})
