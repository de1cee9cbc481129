// What a program finds beside the language itself: a console, timers, its arguments and environment, and numbers that differ between guests.
(() => {
  const global = globalThis;
  const write = global.__blastbox_write;
  const random = global.__blastbox_random;
  const about = global.__blastbox_about;
  const wait = global.__blastbox_turns;
  const ask = global.__blastbox_call;
  const timed = global.__blastbox_timed;
  delete global.__blastbox_write;
  delete global.__blastbox_random;
  delete global.__blastbox_about;
  delete global.__blastbox_turns;
  delete global.__blastbox_call;
  delete global.__blastbox_timed;
  const hidden = (name, value) =>
    Object.defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });

  // Numbers: sfc32, sown anew in every guest before its command. QuickJS takes its seed from a clock.
  let a, b, c, d;
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return t >>> 0;
  };
  hidden("__blastbox_sow", () => {
    delete global.__blastbox_sow;
    a = random(), b = random(), c = random(), d = 1;
    for (let i = 0; i < 12; i++) next();
  });
  Math.random = () => ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;

  // Arguments and environment, asked for when somebody looks: this runs before there is a command.
  let known;
  const command = () => (known ??= JSON.parse(about()));
  const asked = (name, get) => {
    let value;
    const set = (other) => hidden(name, other);
    Object.defineProperty(global, name, { get: () => (value ??= get()), set, configurable: true, enumerable: false });
  };
  const stream = (number) => ({ write: (text) => (write(number, String(text)), true) });
  asked("process", () => ({ argv: command().argv, env: command().env, stdout: stream(1), stderr: stream(2) }));
  asked("scriptArgs", () => command().rest);

  // Console.
  const DEEP = 3, MANY = 100;
  const key = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name));
  const show = (value, depth, seen) => {
    if (typeof value === "string") return depth ? JSON.stringify(value) : value;
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "symbol") return value.toString();
    if (typeof value === "function") return value.name ? `[Function: ${value.name}]` : "[Function (anonymous)]";
    if (Object.is(value, -0)) return "-0";
    if (value === null || typeof value !== "object") return String(value);
    if (seen.includes(value)) return "[Circular]";
    if (value instanceof Error) return told(value);
    if (value instanceof Date) return isNaN(value) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return "Promise {}";
    const inner = seen.concat([value]);
    const part = (item) => show(item, depth + 1, inner);
    const list = (items) => {
      const some = items.slice(0, MANY);
      if (items.length > MANY) some.push(`... ${items.length - MANY} more`);
      return some.join(", ");
    };
    if (Array.isArray(value) || ArrayBuffer.isView(value)) {
      if (depth >= DEEP) return "[Array]";
      const items = Array.from(value.length > MANY ? value.slice(0, MANY) : value, part);
      if (value.length > MANY) items.push(`... ${value.length - MANY} more`);
      return items.length ? `[ ${items.join(", ")} ]` : "[]";
    }
    const maker = value.constructor && value.constructor.name;
    if (depth >= DEEP) return `[${maker || "Object"}]`;
    if (value instanceof Map) return `Map(${value.size}) { ${list([...value].map(([k, v]) => `${part(k)} => ${part(v)}`))} }`;
    if (value instanceof Set) return `Set(${value.size}) { ${list([...value].map(part))} }`;
    const fields = list(Object.keys(value).map((name) => `${key(name)}: ${part(value[name])}`));
    const title = maker && maker !== "Object" ? `${maker} ` : "";
    return fields ? `${title}{ ${fields} }` : `${title}{}`;
  };
  const told = (error) => {
    const stack = typeof error.stack === "string" ? error.stack.trimEnd() : "";
    return stack ? `${error}\n${stack}` : `${error}`;
  };
  const line = (stream) => (...values) => write(stream, values.map((value) => show(value, 0, [])).join(" ") + "\n");
  const out = line(1), err = line(2);
  hidden("console", { log: out, info: out, debug: out, dir: out, warn: err, error: err, trace: err });
  hidden("print", out);
  hidden("__blastbox_thrown", undefined);
  hidden("__blastbox_complain", () => {
    const thrown = global.__blastbox_thrown;
    err("Uncaught " + (thrown instanceof Error ? told(thrown) : show(thrown, 1, [])));
  });

  // Functions that whoever started the program offers to it: JSON in, JSON out. The program waits meanwhile.
  hidden("blastbox", Object.freeze({
    tools: () => (command().env.BLASTBOX_TOOLS ?? "").split(",").filter(Boolean),
    call: (name, input) => {
      const answer = ask(String(name), JSON.stringify(input) ?? "null");
      const value = JSON.parse(answer.slice(1));
      if (answer[0] !== "+") throw Object.assign(new Error(String(value)), { name: "ToolError" });
      return value;
    },
    fetch: (url, options) => request(url, options),
  }));

  // HTTP requests, made by the box's gateway. Letters stand for bytes on the way there and back.
  const bytes = (text) => unescape(encodeURIComponent(text));
  const text = (bytes) => { try { return decodeURIComponent(escape(bytes)); } catch { return bytes; } };
  const failed = (name, message, reason) => Object.assign(new Error(message), { name, reason });
  const cutOff = () => failed("FetchError", "truncated: the answer ended in the middle", "truncated");
  const unchunked = (rest) => {
    let body = "";
    for (;;) {
      const end = rest.indexOf("\r\n"), said = rest.slice(0, Math.max(end, 0));
      if (!/^[0-9a-f]{1,8}\s*(;|$)/i.test(said)) throw cutOff();
      const size = parseInt(said, 16);
      if (!size) return body;
      if (rest.length < end + 4 + size) throw cutOff();
      body += rest.slice(end + 2, end + 2 + size);
      rest = rest.slice(end + 4 + size);
    }
  };
  // What a program passes on may be a stranger's: nothing of it begins another line, or another request.
  const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const must = (holds, what, value) => {
    if (!holds) throw failed("TypeError", `not ${what} of HTTP: ${value}`);
  };
  const request = (url, { method = "GET", headers = {}, body } = {}) => {
    const parts = /^(https?:\/\/)([^/?#]+)([^#]*)/i.exec(String(url));
    must(parts && !/[\x00-\x20\x7f]/.test(parts[2] + parts[3]), "an address", url);
    method = String(method).toUpperCase();
    must(token.test(method), "a method", method);
    const path = parts[3].startsWith("/") ? parts[3] : "/" + parts[3];
    const sent = body === undefined || body === null ? "" : bytes(String(body));
    const lines = Object.entries(headers).map(([name, given]) => {
      const value = String(given);
      must(token.test(name), "a name of a header", name);
      must(!/[\r\n\0]/.test(value), "a value of a header", name);
      return `${name}: ${value}`;
    });
    if (sent || !/^(GET|HEAD)$/.test(method)) lines.push(`content-length: ${sent.length}`);
    const head = [`${method} ${path} HTTP/1.1`, `host: ${parts[2]}`, "connection: close", ...lines];
    const answer = ask(":http", `${parts[1].toLowerCase()}${parts[2]}\n${bytes(head.join("\r\n"))}\r\n\r\n${sent}`);
    if (answer[0] !== "+") {
      const why = String(JSON.parse(answer.slice(1)));
      throw failed("FetchError", why, why.split(":")[0]);
    }
    const cut = answer.indexOf("\r\n\r\n");
    if (cut < 0) throw cutOff();
    const [first, ...rest] = answer.slice(1, cut).split("\r\n");
    const heard = Object.fromEntries(rest.map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
    }));
    const status = Number(first.split(" ")[1]);
    const denied = heard["x-blastbox-denied"];
    if (denied) throw failed("FetchDenied", `${parts[2]}: the gateway refused it: ${denied}`, denied);
    let said = answer.slice(cut + 4);
    if (/chunked/i.test(heard["transfer-encoding"] ?? "")) said = unchunked(said);
    // An answer to HEAD, and one of these, says how long it would be.
    const bodiless = method === "HEAD" || status === 204 || status === 304;
    if (!bodiless && said.length < Number(heard["content-length"] ?? 0)) throw cutOff();
    return { status, ok: status >= 200 && status < 300, headers: heard, bytes: () => Uint8Array.from(said, (letter) => letter.charCodeAt(0)),
      text: () => text(said), json: () => JSON.parse(text(said)) };
  };
  hidden("fetch", async (url, options) => request(url, options));

  // Turns: when the program has run, each line of its input becomes a piece of code by `read`; `over` is told whether that failed.
  let reading, telling;
  hidden("turns", (read, over) => {
    [reading, telling] = [read, over];
    wait();
  });
  hidden("__blastbox_turn", (text) => String(reading(text)));
  hidden("__blastbox_over", (failed) => {
    const value = global.__blastbox_thrown;
    if (!failed && value !== undefined) out(show(value, 1, []));
    global.__blastbox_thrown = undefined;
    telling(failed);
  });

  // Timers.
  const timers = new Map();
  let last = 0;
  const start = (again) => (work, after, ...values) => {
    // Who sets none is not asked for them.
    if (!last) timed();
    const pause = Math.max(again ? 1 : 0, Number(after) || 0);
    timers.set(++last, { work, values, at: Date.now() + pause, again: again ? pause : -1 });
    return last;
  };
  const stop = (number) => void timers.delete(number);
  hidden("setTimeout", start(false));
  hidden("setInterval", start(true));
  hidden("clearTimeout", stop);
  hidden("clearInterval", stop);
  hidden("setImmediate", (work, ...values) => start(false)(work, 0, ...values));
  hidden("queueMicrotask", (work) => void Promise.resolve().then(work));
  hidden("__blastbox_timers", () => {
    let due = -1, first;
    for (const [number, timer] of timers)
      if (first === undefined || timer.at < timers.get(first).at) first = number;
    if (first === undefined) return due;
    const timer = timers.get(first);
    due = Math.max(0, timer.at - Date.now());
    if (due > 0) return due;
    if (timer.again < 0) timers.delete(first);
    else timer.at = Date.now() + timer.again;
    timer.work(...timer.values);
    return 0;
  });
})();
