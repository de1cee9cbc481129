# ETXTBSY is told only to those who may write it: they need but wait until it has ended. As a control: a program of one's own, in
# memory, so that no file of the host is opened for writing.
path = "/proc/self/exe"
if CONTROL:
    own = os.memfd_create("program", 0)
    with open("/bin/sh", "rb") as program: os.write(own, program.read(8 << 20))
    # Nobody may have it open for writing who wants to run it.
    ready = os.open("/proc/self/fd/%d" % own, os.O_RDONLY); os.close(own)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(reader, 0); os.close(writer)
        os.execv("/proc/self/fd/%d" % ready, ["sh", "-c", "echo READY; read word"])
    path = "/proc/%d/exe" % child
    until = time.time() + 5
    while time.time() < until and "memfd" not in os.readlink(path): time.sleep(0.01)
try: os.open(path, os.O_WRONLY)
except OSError as error:
    if error.errno != errno.ETXTBSY: held("%s: %s" % (path, refused(error)))
escaped("%s can be written, at the latest when nobody runs it" % path)
