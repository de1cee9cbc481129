# One thread exchanges a name between an ordinary file and a link to the host's secret; the other opens it, 300 times.
import threading
name, stop = WORKSPACE + "/swap", []
def exchange():
    for turn in range(300):
        side = "%s-%d" % (name, turn)
        if turn % 2: open(side, "w").close()
        else: os.symlink(host("secret"), side)
        os.rename(side, name)
    stop.append(1)
thread = threading.Thread(target=exchange); thread.start()
got = ""
while not stop and not got:
    try:
        with open(name) as file: got = file.read()
    except OSError: pass
thread.join()
try: got = got or open(name).read()
except OSError: pass
# The last exchange leaves an ordinary file; the one before is read once more by name, so that luck decides nothing.
os.symlink(host("secret"), name + "-last")
try: got = got or open(name + "-last").read()
except OSError as error: held("300 exchanges, the link leads nowhere: " + refused(error))
print(got)
