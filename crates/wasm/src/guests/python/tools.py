"""Functions that whoever started this program offers to it, and HTTP requests that the box's gateway makes for it."""
import _host as _door, json as _json, os as _os


class ToolError(Exception):
    """The function gave nothing: it failed, was not in time, or is not offered."""


def tools():
    """The names of what is offered."""
    return [name for name in _os.environ.get("BLASTBOX_TOOLS", "").split(",") if name]


def call(name, input=None):
    """Calls a function with something that JSON can say, waits, and returns what it gives."""
    asked = str(name).encode() + b"\n" + _json.dumps(input, allow_nan=False, separators=(",", ":")).encode()
    answer = bytes(_door.call(asked))
    value = _json.loads(answer[1:])
    if answer[:1] != b"+":
        raise ToolError(value)
    return value


class FetchError(OSError):
    """The request was not answered. `reason` is a word for it."""

    def __init__(self, reason, text):
        super().__init__(text)
        self.reason = reason


class FetchDenied(FetchError):
    """The gateway refused the request. `reason` is its word for why."""


class Response:
    """What a server answered."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.ok = 200 <= status < 300

    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return _json.loads(self.body)


_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_HEX = frozenset(b"0123456789ABCDEFabcdef")


def _must(holds, what, value):
    """What a program passes on may be a stranger's: nothing of it begins another line, or another request."""
    if not holds:
        raise ValueError("not " + what + " of HTTP: " + repr(value))


def _cut_off():
    return FetchError("truncated", "truncated: the answer ended in the middle")


def _unchunked(rest):
    body = []
    while True:
        size, found, rest = rest.partition(b"\r\n")
        size = size.split(b";")[0].strip()
        if not found or not size or not _HEX.issuperset(size):
            raise _cut_off()
        size = int(size, 16)
        if not size:
            return b"".join(body)
        if len(rest) < size + 2:
            raise _cut_off()
        body.append(rest[:size])
        rest = rest[size + 2:]


def fetch(url, method="GET", headers=None, body=None):
    """Has a request made, waits, and returns what the server answered. What the rules of the box refuse is a FetchDenied."""
    scheme, found, rest = str(url).partition("://")
    rest = rest.split("#")[0]
    cut = min((at for at in (rest.find("/"), rest.find("?"), len(rest)) if at >= 0))
    authority, path = rest[:cut], rest[cut:]
    known = found and scheme.lower() in ("http", "https") and authority
    _must(known and all(" " < letter != "\x7f" for letter in rest), "an address", url)
    method = str(method).upper()
    _must(method and _TOKEN.issuperset(method), "a method", method)
    headers = [(str(name), str(value)) for name, value in (headers or {}).items()]
    for name, value in headers:
        _must(name and _TOKEN.issuperset(name), "a name of a header", name)
        _must(not set("\r\n\0").intersection(value), "a value of a header", name)
    sent = body.encode() if isinstance(body, str) else bytes(body or b"")
    lines = [method + " " + (path if path[:1] == "/" else "/" + path) + " HTTP/1.1", "host: " + authority, "connection: close"]
    lines += [name + ": " + value for name, value in headers]
    if sent or method not in ("GET", "HEAD"):
        lines.append("content-length: " + str(len(sent)))
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    answer = bytes(_door.call(b":http\n" + (scheme.lower() + "://" + authority).encode() + b"\n" + head + sent))
    if answer[:1] != b"+":
        why = str(_json.loads(answer[1:]))
        raise FetchError(why.split(":")[0], why)
    head, found, heard = answer[1:].partition(b"\r\n\r\n")
    if not found:
        raise _cut_off()
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if "x-blastbox-denied" in fields:
        reason = fields["x-blastbox-denied"]
        raise FetchDenied(reason, authority + ": the gateway refused it: " + reason)
    if "chunked" in fields.get("transfer-encoding", "").lower():
        heard = _unchunked(heard)
    status = int(first.split(" ")[1])
    # An answer to HEAD, and one of these, says how long it would be.
    bodiless = method == "HEAD" or status in (204, 304)
    if not bodiless and len(heard) < int(fields.get("content-length", "0")):
        raise _cut_off()
    return Response(status, fields, heard)
