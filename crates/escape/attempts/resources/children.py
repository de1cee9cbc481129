# Six children with 40 MiB each. Each says when it has them all.
reader, writer = os.pipe()
children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        piece = bytearray(40 << 20)
        for at in range(0, len(piece), 4096): piece[at] = 1
        os.write(writer, b"x"); time.sleep(5); os._exit(0)
    children.append(child)
os.close(writer)
import select
got, until = 0, time.time() + 6
while got < 6 and time.time() < until:
    if select.select([reader], [], [], 0.2)[0]:
        piece = os.read(reader, 6)
        if not piece: break
        got += len(piece)
    gone = os.waitpid(-1, os.WNOHANG)
    if gone[0] and os.WIFSIGNALED(gone[1]): held("a child was ended by signal %d" % os.WTERMSIG(gone[1]))
escaped("240 MiB in a box of 96") if got == 6 else held("%d of 6 children got their memory" % got)
