# For writing first. ETXTBSY is told only to those who may write it: they need but wait until it has ended.
path = "/proc/%d/exe" % PID_1
try: os.open(path, os.O_WRONLY); escaped("%s can be opened for writing" % path)
except OSError as error:
    if error.errno == errno.ETXTBSY: escaped("%s can be written as soon as nobody runs it" % path)
# Who can open it for reading has a handle by which it is opened again later.
may_open(path)
