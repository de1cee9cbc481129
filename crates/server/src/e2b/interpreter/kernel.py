# The kernel of one context, Python or (with the word `bash`) a shell, in the box, as the box's user: asked and answering in lines of JSON.
#
# Whatever it says is the payload's word. Nothing here guards anything: code that forges an answer fools only whoever wrote it.
import sys

# Files that lie where code works are for code to import, not for this.
here = sys.path.pop(0) if sys.path[:1] == [""] else None

import base64, bisect, codecs, datetime, importlib, json, math, os, random, re, shlex, signal, subprocess, threading, time

asks = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
says = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
if not os.path.exists("/etc/matplotlibrc"):
    # Debian's package keeps its settings there, and will not start without a file; its own defaults need none.
    os.environ.setdefault("MATPLOTLIBRC", os.devnull)

lock = threading.RLock()
state = {"runs": False, "saying": 0, "interrupted": False}


def plain(value):
    """What JSON can carry of a value."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def say(**event):
    """One whole line. An interrupt waits until it is said."""
    line = (json.dumps(plain(event)) + "\n").encode("utf-8", "replace")
    # Only what the main thread says can be broken off by an interrupt.
    ours = threading.current_thread() is threading.main_thread()
    state["saying"] += ours
    try:
        with lock:
            while line:
                line = line[os.write(says, line):]
    finally:
        state["saying"] -= ours
    if ours and state["interrupted"] and not state["saying"]:
        state["interrupted"] = False
        raise KeyboardInterrupt


def interrupt(*_):
    if state["runs"]:
        if state["saying"]:
            state["interrupted"] = True
        else:
            raise KeyboardInterrupt


signal.signal(signal.SIGINT, interrupt)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


class Stream:
    """What code prints: a line at a time, or what there is after a moment."""

    encoding, errors, closed = "utf-8", "replace", False

    def __init__(self, kind, number):
        self.kind, self.number, self.held, self.size, self.lock = kind, number, [], 0, threading.RLock()

    def write(self, text):
        text = str(text)
        if text:
            with self.lock:
                self.held.append(text)
                self.size += len(text)
                full = self.size > 8192
            if full or "\n" in text:
                self.flush()
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        with self.lock:
            text, self.held, self.size = "".join(self.held), [], 0
        for at in range(0, len(text), 65536):
            say(type=self.kind, text=text[at:at + 65536], timestamp=now())

    def fileno(self):
        return self.number

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    seekable = readable


class Pipe(threading.Thread):
    """What programs print that code starts: they write to a descriptor."""

    def __init__(self, kind, number):
        super().__init__(daemon=True)
        self.kind, self.number, self.turn, self.seen = kind, number, 0, threading.Condition()
        self.end, write = os.pipe()
        os.dup2(write, number)
        os.close(write)
        self.start()

    def mark(self):
        return b"\0blastbox %d\0" % self.turn

    def run(self):
        decoder, held = codecs.getincrementaldecoder("utf-8")("replace"), b""
        while piece := os.read(self.end, 65536):
            held += piece
            before, mark, after = held.partition(self.mark())
            if not mark:
                # All but what may be the beginning of the mark.
                keep = next((n for n in range(len(self.mark()), 0, -1) if held.endswith(self.mark()[:n])), 0)
                before, held = held[:len(held) - keep], held[len(held) - keep:]
            else:
                held = after
            text = decoder.decode(before)
            if text:
                say(type=self.kind, text=text, timestamp=now())
            if mark:
                with self.seen:
                    self.turn += 1
                    self.seen.notify_all()

    def drain(self):
        """Everything that was written before has been said. Not waited for long: somebody may hold the pipe full."""
        with self.seen:
            turn = self.turn
            os.write(self.number, self.mark())
            self.seen.wait_for(lambda: self.turn > turn, timeout=2)


pipes = [Pipe("stdout", 1), Pipe("stderr", 2)]
sys.stdout, sys.stderr = Stream("stdout", 1), Stream("stderr", 2)


def tick():
    """What is printed without an end of line is not held back for long."""
    while True:
        time.sleep(0.1)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Stream) and stream.size:
                stream.flush()


def in_child():
    """A process that code forks prints like any other program that it starts."""
    sys.stdout, sys.stderr = os.fdopen(os.dup(1), "w", 1), os.fdopen(os.dup(2), "w", 1)
    os.close(says)
    signal.signal(signal.SIGINT, signal.default_int_handler)


os.register_at_fork(after_in_child=in_child)
threading.Thread(target=tick, daemon=True).start()


def settle():
    sys.stdout.flush()
    sys.stderr.flush()
    for pipe in pipes:
        pipe.drain()


FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
    "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
    "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}


def result(data, main):
    settle()
    event, extra = {}, {}
    for kind, value in data.items():
        if kind in FIELDS:
            event[FIELDS[kind]] = value.strip() if kind in ("image/png", "image/jpeg") and isinstance(value, str) else value
        else:
            extra[kind] = value
    text = event.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        event["text"] = text[1:-1]
    say(type="result", is_main_result=main, extra=extra, **event)


def columns(frame):
    """A data frame as lists."""
    return {str(name): [plain(None if value is None or value != value else value) for value in frame[name].tolist()]
            for name in frame.columns}


def begin(variables):
    """Started before its box was anybody's, it hears now whose it is. What was drawn before is nobody's luck."""
    os.environ.update(variables)
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    # OpenSSL has a generator of its own, which does not notice that its machine is a copy.
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(64), 64.0)


def main():
    try:
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.formatters import DisplayFormatter
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets import Type
        from traitlets.config import Config
    except ImportError as missing:
        say(type="unable", text="this image has no IPython for its python3 (%s)" % missing)
        return

    class Formatter(DisplayFormatter):
        def format(self, obj, include=None, exclude=None):
            data, metadata = super().format(obj, include, exclude)
            kind = type(obj).__module__.split(".")[0], type(obj).__name__
            try:
                if kind == ("pandas", "DataFrame"):
                    data["e2b/data"] = columns(obj)
                elif kind == ("matplotlib", "Figure"):
                    chart = Charts().of(obj)
                    if chart is not None:
                        data["e2b/chart"] = chart
            except Exception:
                # What it is besides its picture or table is a courtesy.
                pass
            return data, metadata

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, **_):
            result(data, False)

        def clear_output(self, wait=False):
            pass

    class Hook(DisplayHook):
        def __call__(self, value=None):
            self.check_for_underscore()
            if value is not None and not self.quiet():
                data, _ = self.compute_format_data(value)
                self.update_user_ns(value)
                self.fill_exec_result(value)
                if data:
                    result(data, True)

    class Shell(InteractiveShell):
        displayhook_class, display_pub_class = Type(Hook), Type(Publisher)

        def init_display_formatter(self):
            self.display_formatter = Formatter(parent=self)
            self.configurables.append(self.display_formatter)

        def _showtraceback(self, kind, value, lines):
            settle()
            say(type="error", name=kind.__name__, value=str(value), traceback="\n".join(lines))

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    shell = Shell.instance(config=config)
    # What the first piece of code would have to fetch is fetched now: it may be a while until somebody comes.
    shell.run_cell("0", store_history=False, silent=True)
    shell.display_formatter.format(0)
    if here is not None:
        sys.path.insert(0, here)
    # What its operator says that most code imports.
    imports, sys.argv[1:] = sys.argv[1:], []
    for name in imports:
        try:
            importlib.import_module(name)
        except Exception as missing:
            say(type="unable", text="%s cannot be imported (%s)" % (name, missing))
            return
    say(type="ready")
    for line in asks:
        asked = json.loads(line)
        if "ping" in asked:
            say(type="pong")
            continue
        if "begin" in asked:
            begin(asked["begin"])
        before = dict(os.environ)
        state["interrupted"] = False
        try:
            state["runs"] = True
            os.environ.update(asked.get("env_vars") or {})
            say(type="number_of_executions", execution_count=shell.execution_count)
            shell.run_cell(asked["code"], store_history=True)
        except BaseException as wrong:
            say(type="error", name=type(wrong).__name__, value=str(wrong), traceback="")
        finally:
            state["runs"] = False
            if asked.get("env_vars"):
                os.environ.clear()
                os.environ.update(before)
        settle()
        say(type="end")


def shell():
    """The same for a shell: one that stays, and says over a pipe of its own how each piece ended."""
    status, tell = os.pipe()
    statuses = os.fdopen(status, "r")
    words = ["bash", "--noprofile", "--norc"]
    bash = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, stdout=1, stderr=2, pass_fds=[tell])
    os.close(tell)
    # An interrupt ends what the shell runs, not the shell.
    bash.stdin.write("trap : INT\n")
    say(type="ready")
    for count, line in enumerate(asks, 1):
        asked = json.loads(line)
        # Begun in another sandbox, of which this one is a copy, it hears now whose it is.
        for name, value in (asked.get("begin") or {}).items():
            if name.isidentifier():
                bash.stdin.write("export %s=%s\n" % (name, shlex.quote(value)))
        env = "".join("export %s=%s; " % (name, shlex.quote(value)) for name, value in (asked.get("env_vars") or {}).items()
                      if name.isidentifier())
        code = "eval %s" % shlex.quote(asked["code"])
        # Variables of one call are those of a shell beside it, and what that sets is gone with it.
        bash.stdin.write("%s </dev/null\necho $? >&%d\n" % ("( %s%s )" % (env, code) if env else code, tell))
        bash.stdin.flush()
        say(type="number_of_executions", execution_count=count)
        ended = statuses.readline().strip()
        settle()
        if not ended:
            return
        if ended != "0":
            say(type="error", name="ExitStatus", value=ended, traceback="")
        say(type="end")


shell() if sys.argv[1:] == ["bash"] else main()
