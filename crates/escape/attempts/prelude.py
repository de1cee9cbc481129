# Comes before every attempt in Python, in a box and as its control outside.
#
# An attempt ends with one line on standard output: ESCAPED, HELD or NA, and evidence. The host believes ESCAPED at once;
# HELD only if nothing on its own side says otherwise. What is read goes to standard output: the host looks for the secret there.
import errno, os, struct, sys, time

CONTROL = os.environ.get("ESCAPE_ROLE") == "control"
SURROUND = os.environ.get("ESCAPE_SURROUND", "plain")
NONCE = os.environ["ESCAPE_NONCE"]
WORKSPACE = os.environ["ESCAPE_STAGE"] + "/workspace" if CONTROL else "/workspace"

class Absent:
    """What a guest in WebAssembly does not have: whoever needs it there has nothing to try."""
    def __getattr__(self, part): na("the guest has no C library and no system call to use %s for: WebAssembly has imports alone" % part)

WASI = sys.platform == "wasi"
if WASI:
    import socket
    ctypes = libc = Absent()
else:
    import ctypes, socket
    libc = ctypes.CDLL(None, use_errno=True)

# Where a test build shows the host's root in the box, to see whether the next layer holds.
HOST_ROOT = os.environ.get("ESCAPE_HOSTROOT", "")

# Which layer a test build has left out.
LIFTED = os.environ.get("ESCAPE_LIFTED", "")

def shown(path):
    """The same path of the host, where a test build shows the host's root: what its modes keep to others is the host's own
    business, and what is not there is kept by nobody, so neither says anything about the next layer."""
    if not HOST_ROOT: return path
    path = HOST_ROOT + path
    try: os.stat(path)
    except OSError as error: na("%s: %s: the next layer was not asked" % (path, refused(error)))
    return path

def host(name):
    """A place of the host's stage, by its host path. Its modes let everybody do everything who gets there."""
    path = HOST_ROOT + os.environ["ESCAPE_STAGE"] + "/" + name
    if HOST_ROOT:
        place = path if os.path.lexists(path) else os.path.dirname(path)
        if not os.access(place, os.R_OK | os.W_OK): na("%s is not open to everybody: the next layer was not asked" % place)
    return path

def there(name):
    """The same, where it is there to be changed."""
    if not os.path.exists(host(name)): na("there is no stage in sight") if HOST_ROOT else held("not there")
    return host(name)

def end(word, evidence):
    sys.stdout.write("%s %s\n" % (word, str(evidence).replace("\n", " ")[:600]))
    sys.stdout.flush()
    os._exit(0)

def escaped(evidence): end("ESCAPED", evidence)
def held(evidence): end("HELD", evidence)
def na(reason): end("NA", reason)
def nothing_there(reason):
    """In a control: nobody can do it, because this host has nothing of the kind. What refuses a box then shows nothing."""
    end("ABSENT", reason)

def on_error(kind, error, trace):
    """A refusal that an attempt does not expect is still a refusal; anything else is no answer."""
    # No number: the library itself says that there is no such thing.
    if WASI and isinstance(error, OSError) and error.errno is None: na("the guest has no such thing: %s" % error)
    if isinstance(error, OSError): held("%s: %s" % (error.filename or "a call", refused(error)))
    if WASI and isinstance(error, ImportError): na("the guest has no module %s" % error.name)
    # Only what a module of the library lacks: a mistake of an attempt is no answer.
    if WASI and isinstance(error, AttributeError) and isinstance(error.obj, type(sys)):
        na("the guest has no %s.%s: WASI preview 1 has no such call" % (error.obj.__name__, error.name))
    sys.__excepthook__(kind, error, trace)
sys.excepthook = on_error

def syscall(number, *arguments):
    """The raw call: (result, name of the errno or None)."""
    if WASI: na("the guest cannot make a system call by its number: WebAssembly has imports alone")
    ctypes.set_errno(0)
    given = [ctypes.c_char_p(a) if isinstance(a, bytes) else (a if isinstance(a, ctypes._SimpleCData) else ctypes.c_long(a)) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return result, (errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno())) if result == -1 else None)

# The calls that make namespaces (clone, unshare, clone3) answer ENOSPC where the limit on them is met. From any other call
# it means that something is full, not that it was refused.
NAMESPACE_CALLS = (56, 272, 435)
REFUSALS = ("EPERM", "ENOSYS", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")
ABSENT = ("ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")

def call(number, *arguments, absent=()):
    """Any answer but a refusal means that the call reached code of the kernel that the box has no business in. `absent`: what
    the filter answers as a kernel would that does not know the option; the arguments are then such that one that does takes them."""
    result, error = syscall(number, *arguments)
    if CONTROL and error in ABSENT + absent:
        if filtered(): na("a filter of system calls around this caller may be what answers: %s" % error)
        what = "such family of sockets" if number == 41 else "such option of system call %d" % number if absent else "system call %d" % number
        nothing_there("this kernel has no %s: %s outside the box too" % (what, error))
    if CONTROL and error in ("EPERM", "EACCES") and forbidden(number):
        na("this host forbids it outside of boxes too (%s): %s" % (error, forbidden(number)))
    if error in REFUSALS + absent or (error == "ENOSPC" and number in NAMESPACE_CALLS):
        held("system call %d: %s" % (number, error))
    escaped("system call %d reached the kernel: %s" % (number, error or result))

def setting(name):
    try:
        with open("/proc/sys/" + name) as file: return file.read().strip()
    except OSError: return ""

# What root needs for a call, and settings of the host that take it away from root as well.
NEEDS = {175: 16, 313: 16, 176: 16, 246: 22, 320: 22, 167: 21, 168: 21, 163: 20, 103: 34, 172: 17, 173: 17, 164: 25, 227: 25,
    159: 25, 304: 2, 283: 35, 298: 38, 321: 39, 141: 23, 251: 23, 133: 27, 188: 31}
SETTINGS = {175: ("kernel/modules_disabled", "1"), 313: ("kernel/modules_disabled", "1"), 176: ("kernel/modules_disabled", "1"),
    246: ("kernel/kexec_load_disabled", "1"), 320: ("kernel/kexec_load_disabled", "1"), 321: ("kernel/unprivileged_bpf_disabled", "3"),
    323: ("vm/unprivileged_userfaultfd", "0"), 425: ("kernel/io_uring_disabled", "2"), 426: ("kernel/io_uring_disabled", "2"),
    427: ("kernel/io_uring_disabled", "2"), 298: ("kernel/perf_event_paranoid", "4"), 101: ("kernel/yama/ptrace_scope", "3"),
    310: ("kernel/yama/ptrace_scope", "3"), 311: ("kernel/yama/ptrace_scope", "3"), 438: ("kernel/yama/ptrace_scope", "3")}

def status():
    return dict(line.split(":\t", 1) for line in lines("/proc/self/status") if ":\t" in line)

def filtered():
    """Whether somebody has put a filter of system calls around this caller already."""
    return status().get("Seccomp", "0") != "0"

def loads_modules():
    """Whether asking for what is not there could load a module into the host's kernel, which a control does not do."""
    return os.path.exists("/proc/modules") or not os.path.exists("/proc/filesystems")

def able(capability): return bool(int(status().get("CapEff", "0"), 16) >> capability & 1)

def forbidden(number):
    """Why a control cannot be had: the host, or what it runs in, forbids the call to whoever is not in a box as well."""
    name, value = SETTINGS.get(number, ("", None))
    if value is not None and setting(name) == value: return "%s is %s" % (name.replace("/", "."), value)
    if filtered(): return "a filter of system calls is around this caller already"
    need = NEEDS.get(number)
    if SURROUND == "plain" and os.getuid() == 0 and need is not None and not able(need):
        return "root of this host lacks the capability number %d" % need
    try:
        with open("/sys/kernel/security/lockdown") as file: lockdown = file.read()
        if lockdown and "[none]" not in lockdown: return "the kernel is locked down: " + lockdown.strip()
    except OSError: pass
    return ""

def refused(error):
    return errno.errorcode.get(error.errno, str(error.errno))

def lines(path):
    try:
        with open(path) as file: return file.read().splitlines()
    except OSError: return []

def driven(path):
    """In a control: whether the kernel has a driver for a device node. Opening one that has none would load a module into the
    host's kernel, and that is nothing that a control may do."""
    about = os.stat(path)
    if about.st_rdev == 0: return True
    major, minor = os.major(about.st_rdev), os.minor(about.st_rdev)
    if major == 10: return any(line.split()[:1] == [str(minor)] for line in lines("/proc/misc"))
    return any(line.split()[:1] == [str(major)] for line in lines("/proc/devices"))

def mounted(path, kind):
    """Before a place at which a host mounts something when it is asked for (autofs): nobody here asks for that."""
    if not (CONTROL or HOST_ROOT): return
    if not any(" %s%s " % (HOST_ROOT, path) in line and " - %s " % kind in line for line in lines("/proc/self/mountinfo")):
        na("this host has no %s mounted" % kind)

def exists(path):
    """In a control: goes on where the host has a file. What this caller may not look for is not what is not there."""
    try: os.lstat(path)
    except OSError as error:
        # A process that the campaign has started is nothing that a host can lack: without it the control has failed.
        if path.startswith("/proc/%d/" % PID_1): return
        if path.startswith("/proc/") and not os.path.exists("/proc/filesystems"): na("this caller sees nothing but processes in /proc")
        if error.errno in (errno.ENOENT, errno.ENOTDIR): nothing_there("this host has no %s, and so no box can have it of the host" % path)

def may_open(path, flags=os.O_RDONLY, read=True):
    """Opens and, for reading, reads one piece. Nothing is ever written."""
    path = shown(path)
    if CONTROL: exists(path)
    if CONTROL and path.startswith("/dev/") and not driven(path) and loads_modules():
        na("the driver of %s is not loaded, and a control loads none" % path)
    try:
        fd = os.open(path, flags | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if CONTROL and error.errno in (errno.ENXIO, errno.ENODEV): nothing_there("this kernel has no driver of %s" % path)
        if CONTROL and path.startswith("/dev/") and error.errno != errno.ENOENT:
            na("this caller may not open %s outside a box either (%s)" % (path, refused(error)))
        held("%s: %s" % (path, refused(error)))
    if flags & os.O_ACCMODE != os.O_RDONLY or not read:
        escaped("%s can be opened" % path)
    try:
        piece = os.read(fd, 256)
    except OSError as error:
        held("%s: opened, reading: %s" % (path, refused(error)))
    if piece: escaped("%s can be read: %d bytes%s" % (path, len(piece), STOOD_IN))
    held("%s is empty" % path)

def reveal(path):
    """Reads a file and prints it: the host compares it with its own."""
    path = shown(path)
    if CONTROL: exists(path)
    try:
        with open(path, "rb") as file: content = file.read(16384)
    except OSError as error: held("%s: %s" % (path, refused(error)))
    if not content: held("%s is empty" % path)
    sys.stdout.write(content.decode("latin-1") + "\n")
    escaped("%s can be read: %d bytes" % (path, len(content)))

def read_log():
    """Reads a kernel's log by its call and prints it: the host compares it with its own."""
    buffer = ctypes.create_string_buffer(1 << 18)
    count, error = syscall(103, 3, ctypes.c_char_p(ctypes.addressof(buffer)), 1 << 18)
    if error: call(103, 10, 0, 0)
    sys.stdout.write(buffer.raw[:count].decode("latin-1") + "\n")
    escaped("system call 103 was answered with %d bytes" % count)

def read_kmsg():
    """Reads a kernel's log as a device and prints it."""
    path, records = shown("/dev/kmsg"), []
    if CONTROL: exists(path)
    try: fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if CONTROL: na("this caller may not open %s outside a box either (%s)" % (path, refused(error)))
        held("%s: %s" % (path, refused(error)))
    try:
        while len(records) < 5000: records.append(os.read(fd, 8192).decode("latin-1"))
    except OSError: pass
    sys.stdout.write("".join(records) + "\n")
    escaped("%d records of %s" % (len(records), path)) if records else held("%s is empty" % path)

def begun():
    """Before a wait that should be cut short: what was never begun was not stopped."""
    print("BEGUN", flush=True)

def take(path):
    """Prints a file whose content the host knows."""
    try:
        with open(path, "rb") as file: sys.stdout.write(file.read(4096).decode("latin-1") + "\n")
    except OSError as error:
        held("%s: %s" % (path, refused(error)))
    sys.stdout.flush()

def write_maps(uid, gid):
    for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)):
        with open("/proc/self/" + name, "w") as file: file.write(text)

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000

def weaken():
    """Controls that need power get it in namespaces of their own: power over nothing of the host's."""
    flags = {"plain": 0, "namespaces": NEWUSER | NEWNS | NEWUTS | NEWIPC | NEWPID, "net": NEWUSER | NEWNS | NEWNET}[SURROUND]
    if not flags: return
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(flags) != 0:
        na("this host lets nobody make namespaces for a control: " + errno.errorcode[ctypes.get_errno()])
    write_maps(uid, gid)
    if libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) != 0:
        na("mounts cannot be made private for a control")
    if flags & NEWPID:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os._exit(0)
        # It ends with whoever waits for it, as that one ends with the campaign (PR_SET_PDEATHSIG).
        libc.prctl(1, 9, 0, 0, 0)
    if SURROUND == "net": own_net()

# What to add to evidence where a control has put something there itself.
STOOD_IN = ""

def stand_in(path, text=None):
    """In a control: something at a fixed path of the host, on an empty file system in namespaces of its own."""
    if not CONTROL: return
    global STOOD_IN
    STOOD_IN = " (a stand-in)"
    if SURROUND == "plain": na("nothing of the host is covered outside of namespaces")
    top = "/" + path.strip("/").split("/")[0]
    top = os.path.realpath(top) if not os.path.isdir(top) or os.path.islink(top) else top
    if libc.mount(b"none", top.encode(), b"tmpfs", 0, b"size=1m") != 0:
        na("cannot cover %s in the control" % top)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if text is not None:
        with open(path, "w") as file: file.write(text)

def steal(path):
    """Reads what a fixed path of the host would hold. Where its root is shown, a stand-in lies on the stage that everybody may read."""
    if HOST_ROOT: take(host("fixed" + path))
    stand_in(path, "stand-in of a secret\n")
    may_open(path)

def connect_unix(path):
    """Speaks to a service of the host at a fixed path."""
    stand_in(path)
    if CONTROL:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path); server.listen(1)
    client = socket.socket(socket.AF_UNIX)
    try: client.connect(path)
    except OSError as error: held("%s: %s" % (path, refused(error)))
    escaped("connected to %s%s" % (path, STOOD_IN))

def own_net():
    """A network of the control's own in which every address is its own, and somebody listens."""
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    import fcntl
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x49))
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    for family in (socket.AF_INET, socket.AF_INET6):
        # RTM_NEWROUTE of type local to 0/0 on interface 1: what AnyIP is called.
        body = struct.pack("BBBBBBBBI", family, 0, 0, 0, 255, 4, 254, 2, 0) + struct.pack("HHI", 8, 4, 1)
        netlink.send(struct.pack("IHHII", 16 + len(body), 24, 0x0505, 1, 0) + body)
        if struct.unpack("i", netlink.recv(4096)[16:20])[0] and family == socket.AF_INET:
            na("the control's own network cannot be set up")

def listen(kind, port, family=socket.AF_INET):
    """In a control: somebody who answers, in the network of its own."""
    server = socket.socket(family, kind)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
    if kind == socket.SOCK_STREAM: server.listen(4)
    return server

def reach_tcp(address, port):
    """Connects to an address that no policy names."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if CONTROL: server = listen(socket.SOCK_STREAM, port, family)
    client = socket.socket(family, socket.SOCK_STREAM)
    client.settimeout(1)
    try: client.connect((address, port))
    except OSError as error: held("TCP %s:%d: %s" % (address, port, refused(error) if error.errno else "no answer"))
    escaped("TCP connection to %s:%d" % (address, port))

def reach_udp(address, port, packet=b"x", broadcast=False):
    """Sends a datagram. Where one can be sent it is out, whether or not anybody answers."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if CONTROL: server = listen(socket.SOCK_DGRAM, port, family)
    client = socket.socket(family, socket.SOCK_DGRAM)
    if broadcast: client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try: client.sendto(packet, (address, port))
    except OSError as error: held("UDP %s:%d: %s" % (address, port, refused(error)))
    escaped("a datagram went to %s:%d" % (address, port))

def knock(name, call):
    """Knocks in a child at a door that should give its process id, and says what became of the child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, struct.pack("i", call())); os._exit(0)
    os.close(writer)
    answer, status = os.read(reader, 4), os.waitpid(child, 0)[1]
    number = struct.unpack("i", answer)[0] if len(answer) == 4 else None
    if number == child: escaped("%s answered %d" % (name, number))
    if CONTROL and filtered(): na("a filter of system calls is around this caller already")
    if CONTROL: nothing_there("this kernel has no such door: %s outside the box too" % ("it answers %d" % number if number is not None else "the process is ended"))
    if number is not None: held("%s answered %d" % (name, number))
    held("%s: the process was ended (%s)" % (name, "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "by its kernel"))

# Families of sockets by the name under which the kernel has registered them; 2: by protocol.
REGISTERED = {17: "PACKET", 38: "ALG", 40: "AF_VSOCK", 44: "XDP", 15: "KEY", 29: "CAN_RAW", 31: "HCI", 30: "TIPC", 21: "RDS",
    43: "SMC", 1: "UNIX", (2, 1): "RAW", (2, 132): "SCTP", (2, 262): "MPTCP", (2, 136): "UDP-Lite"}

def registered(family, protocol):
    """In a control: whether the kernel has the family already. Asking for one that it has not would load a module into the
    host's kernel."""
    if family == 16: return any(line.split()[1:3] == [str(protocol), "0"] for line in lines("/proc/net/netlink"))
    name = REGISTERED.get((family, protocol)) or REGISTERED.get(family)
    return any(line.split()[:1] == [name] for line in lines("/proc/net/protocols"))

def socket_of(family, kind, protocol=0):
    """A socket of a family that the box has no use for."""
    if CONTROL and not registered(family, protocol) and loads_modules():
        na("this kernel has no such family loaded, and a control loads none")
    call(41, family, kind, protocol)

# In a control a process that was started for it; itself where there is none, and never the host's own first process.
PID_1 = int(os.environ.get("ESCAPE_DECOY", os.getpid())) if CONTROL else 1

def left(what):
    """Ends the command when the process that it leaves has its name, so that the host's look decides and not luck."""
    import glob
    until = time.time() + 2
    while time.time() < until:
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                if NONCE.encode() in open(path, "rb").read(): held(what + " is left")
            except OSError: pass
        time.sleep(0.01)
    # Nothing was left, so nothing was stopped: no word, and the host counts it as not run.
    sys.stderr.write(what + " should be left, and is not in sight\n")
    sys.stderr.flush()
    os._exit(1)

def leave_process(seconds=3):
    """Replaces this process by one that the host finds by the nonce in its command line."""
    if WASI: na("the guest has no processes")
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(%d)" % seconds, NONCE])

# As long as a neighbour may take to come and look: whoever is in a box ends with it, and the campaign ends both.
STAY = 8 if CONTROL else 80

def stay():
    """The first of two neighbours: says that it is there, and waits until the campaign ends it."""
    print("READY", flush=True)
    time.sleep(STAY)
    os._exit(0)

def leave_ipc(name, leave, stay=0):
    """Leaves something of System V, which outlives its process and goes with no directory. A control therefore leaves and looks
    in one IPC namespace of its own, by two processes, and the namespace takes it along whoever is killed."""
    if os.environ["ESCAPE_PHASE"] == "leave":
        result, error = (None, None) if CONTROL else leave()
        print("READY", flush=True)
        if stay and not CONTROL: time.sleep(stay)
        held("%s: %s" % (name, error or "left"))
    if CONTROL:
        child = os.fork()
        if child == 0: leave(); os._exit(0)
        os.waitpid(child, 0)

def tool(name):
    for place in ("/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"):
        if os.path.exists(place + name): return place + name
    na("there is no %s" % name)

if CONTROL:
    import resource
    size = 64 << 20 if SURROUND == "plain" else 1 << 41
    for what, most in ((resource.RLIMIT_AS, 1 << 30), (resource.RLIMIT_CPU, 10), (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_NOFILE, 1024)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (min(most, hard) if hard >= 0 else most,) * 2)
    # 1 and not 0: at 0 the kernel still starts the host's own handler of crashes. The one control that makes a core raises it again.
    try: resource.setrlimit(resource.RLIMIT_CORE, (1, 4 << 20))
    except (ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard), hard))
    weaken()
