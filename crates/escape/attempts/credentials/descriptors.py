path = "/proc/%d/fd" % PID_1
try: names = os.listdir(path)
except OSError as error: held(path + ": " + refused(error))
escaped("%d descriptors in %s" % (len(names), path))
