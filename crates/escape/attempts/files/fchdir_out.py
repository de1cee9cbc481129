try: os.fchdir(int(os.environ["ESCAPE_FD"]))
except OSError as error: held("fchdir: " + refused(error))
take("secret")
