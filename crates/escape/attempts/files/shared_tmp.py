for place in ("/tmp", "/dev/shm", "/var/tmp"):
    try: open(place + "/" + NONCE, "w").close()
    except OSError: pass
held("written where the box may write; the host's own directories tell")
