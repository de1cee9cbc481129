ends = []
for count in range(2000):
    try: ends.extend(os.openpty())
    except OSError as error: held("%d terminals, then %s" % (count, refused(error)))
escaped("2000 terminals")
