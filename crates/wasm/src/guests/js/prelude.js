// What a program finds beside the language itself: a console, timers, its arguments and environment, and numbers that differ between guests.
(() => {
  const global = globalThis;
  const write = global.__blastbox_write;
  const random = global.__blastbox_random;
  const about = global.__blastbox_about;
  const wait = global.__blastbox_turns;
  const ask = global.__blastbox_call;
  delete global.__blastbox_write;
  delete global.__blastbox_random;
  delete global.__blastbox_about;
  delete global.__blastbox_turns;
  delete global.__blastbox_call;
  const hidden = (name, value) =>
    Object.defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });

  // Numbers: sfc32, sown anew in every guest. QuickJS takes its seed from a clock.
  let a = random(), b = random(), c = random(), d = 1;
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return t >>> 0;
  };
  for (let i = 0; i < 12; i++) next();
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
  }));

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
