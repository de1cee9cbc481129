import resource
most = 900 if CONTROL else 200000
ends = []
for count in range(most):
    try: ends.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error: held("%d open files, then %s" % (count, refused(error)))
escaped("%d open files" % most)
