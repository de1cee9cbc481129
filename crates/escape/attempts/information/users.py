names = [line.split(":")[0] for line in open(shown("/etc/passwd"))]
others = [name for name in names if name not in ("root", "nobody", "user", "agent", "payload", "box")]
escaped("%d users of the host, such as %s" % (len(others), others[0])) if others else held("only %s" % ", ".join(names))
