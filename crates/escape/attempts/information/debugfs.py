path = "/sys/kernel"
try: names = os.listdir(path)
except OSError as error: held(path + ": " + refused(error))
escaped("%d entries of %s" % (len(names), path)) if names else held("empty")
